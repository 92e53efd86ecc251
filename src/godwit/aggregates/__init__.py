"""Aggregates: one file each, with all that Godwit knows of it."""
