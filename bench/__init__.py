"""Measurements of Godwit beside Spark's own operators: `python -m bench`, one file a question."""
