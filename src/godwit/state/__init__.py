"""Durable state: files in hash order, their trees, merging and reading them."""
