"""One file a strategy; `godwit.migration.strategies` has them all."""
