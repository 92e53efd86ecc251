"""The life of an epoch on a worker, and the keeper beside it."""
