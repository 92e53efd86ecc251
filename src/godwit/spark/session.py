"""A Spark of its own for a workload."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyspark
from pyspark.sql import SparkSession


@contextmanager
def session(master: str, conf: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """A Spark of its own that logs nothing; it ends with the context."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))  # for a cluster
    builder = (
        SparkSession.builder.master(master)
        .appName("godwit")
        .config("spark.python.daemon.module", "godwit.spark.daemon")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=dict(conf))
    )
    with _quiet():
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """Processes that start here, such as Spark's, say to nobody what they say to standard error;
    unless this fails."""
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as unseen:
        os.dup2(unseen.fileno(), 2)
        try:
            yield
        except BaseException:
            unseen.seek(0)
            os.write(terminal, unseen.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
