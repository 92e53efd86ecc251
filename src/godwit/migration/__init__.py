"""Migrations as values without I/O: strategies, the life of a migration, an operator's timeline."""
