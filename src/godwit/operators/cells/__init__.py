"""State as the user's function sees it: read in bulk and late, and only changes are written."""
