"""Where the outputs of an epoch go, one file a sink."""
