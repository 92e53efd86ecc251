"""Aggregates: what each one folds, merges and returns."""
