"""Measurements of Godwit beside Spark's own operators, one file a question."""
