"""Python processes of tasks that start with everything imported, which they take a second for
otherwise: in an epoch, when a worker is new to an executor or an epoch is run again.

It stands in for Spark's own, from which it differs in nothing else:

    spark.python.daemon.module=godwit.spark.daemon
"""

from pyspark import worker  # noqa: F401
from pyspark.daemon import manager

import godwit.spark.engine  # noqa: F401

if __name__ == "__main__":
    manager()
