"""Counts over keys that are all known from the start."""

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from lab.workloads.catalog import NUMBERED, Workload
from lab.workloads.counts import hash_count


def hash_counts(keys: int, *, count: Callable[..., gw.Stream] = hash_count) -> Workload:
    """Hash or key count over a domain of `keys` keys, all of which are known from the start."""
    return Workload(
        count.__name__.replace("_", "-"),
        NUMBERED,
        partial(count, keys=keys),
        partial(known_counts, keys=keys, count=count),
    )


def known_counts(
    spark: SparkSession, *, keys: int, count: Callable[..., gw.Stream]
) -> Mapping[str, DataFrame]:
    """A count of one for each key."""
    key = "xxhash64(id, 1)" if count is hash_count else "id"
    return {"ids": spark.range(keys).selectExpr(f"{key} AS id", "1L AS n")}
