"""Where checkpoint files live: one small protocol, and the stores that keep it."""
