"""Spark applications of the lab: their settings, and a directory to write to."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from godwit.spark.session import session
from godwit.spark.start import START_SETTINGS

SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    **START_SETTINGS,  # for Spark's own queries, too: the faster way to write their logs
}
PLACED: Final = {
    # So that workers stay where they are; see docs/internals/record.md.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "30s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # all executors are there at the start
}


@contextmanager
def application(
    master: str, conf: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[SparkSession, Path]]:
    """A Spark application and a scratch directory, for its executors as well; both end with the
    context."""
    with scratch() as directory:
        os.environ["SPARK_WORKER_DIR"] = str(directory / "executors")  # of a cluster
        settings = SETTINGS | {"spark.local.dir": str(directory / "local")} | dict(conf)
        with session(master, settings) as spark:
            yield spark, directory


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is deleted afterwards, whoever still writes to it."""
    with tempfile.TemporaryDirectory(prefix="godwit-lab-", ignore_cleanup_errors=True) as name:
        yield Path(name)
