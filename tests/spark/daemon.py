"""Spark's daemon of Python workers, which it forks with everything imported: they start sooner."""

import pandas  # type: ignore[import-untyped]  # noqa: F401
from pyspark import worker  # noqa: F401
from pyspark.daemon import manager

import godwit  # noqa: F401

if __name__ == "__main__":
    manager()
