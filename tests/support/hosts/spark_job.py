"""A job of as many tasks as there are executors; it prints where each of them ran."""

import socket
from collections.abc import Iterable

from pyspark.sql import SparkSession


def where(_: Iterable[int]) -> Iterable[str]:
    yield socket.gethostname()


if __name__ == "__main__":
    spark = SparkSession.builder.config("spark.log.level", "ERROR").getOrCreate()
    context = spark.sparkContext
    tasks = context.defaultParallelism
    print(*sorted(context.parallelize(range(tasks), tasks).mapPartitions(where).collect()))
    spark.stop()
