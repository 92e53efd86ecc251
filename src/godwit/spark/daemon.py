"""Python processes of tasks that start with everything imported, which they take a second for
otherwise: in an epoch, when a worker is new to an executor or an epoch is run again.

It stands in for Spark's own, which imports nothing that may start a thread before it forks:

    spark.python.daemon.module=godwit.spark.daemon

Here there is one thread then, of Arrow's memory allocator, which provides for forks.
"""

from pyspark import worker  # noqa: F401
from pyspark.daemon import manager

from godwit.spark.executors import prepare

if __name__ == "__main__":
    prepare()
    manager()
