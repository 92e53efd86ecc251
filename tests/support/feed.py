"""A replayable stream for tests: one file an epoch."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from godwit.model.schema import parse


class Feed:
    """A directory that a file stream reads, one file an epoch, in the order of `add`."""

    def __init__(self, directory: Path, ddl: str) -> None:
        self.directory = directory
        self.ddl = ddl
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Make `rows` the data of the next epoch."""
        self.put(pa.Table.from_pylist(list(rows), schema=parse(self.ddl)))

    def put(self, rows: pa.Table) -> None:
        """Make `rows` the data of the next epoch; the file appears whole."""
        number = len(list(self.directory.glob("*.parquet")))
        draft = self.directory / f".{number}"
        pq.write_table(rows, draft)
        os.utime(draft, (number, number))  # Spark reads older files first
        draft.rename(self.directory / f"{number:06}.parquet")

    def stream(self, spark: SparkSession, files: int = 1) -> DataFrame:
        """Of so many files an epoch; `add` tells of one."""
        reader = spark.readStream.schema(self.ddl).option("maxFilesPerTrigger", files)
        return reader.parquet(str(self.directory))
