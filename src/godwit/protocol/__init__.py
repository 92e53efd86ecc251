"""Protocols as state machines without I/O: every race is a list of events."""
