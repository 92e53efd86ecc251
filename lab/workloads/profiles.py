"""Profiles: a count and a long text for each key, so that the state has gigabytes.

With Godwit, whose state is known from the start, and with Spark, whose store has to be filled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from lab.tools.filling import counter, initial, known, settled

OPERATOR: Final = "profiles"
ROW_BYTES: Final = 256
TEXT_BYTES: Final = ROW_BYTES - 40
ROWS: Final = 20_000  # an epoch: some for each segment
FILLING: Final = 10  # epochs that fill Spark's store
FETCH_RATE: Final = 125e6  # bytes a second from the checkpoint: 1 Gbit/s, in place of a network


def padded(value: str) -> str:
    """A text that shrinks when it is compressed."""
    return f"lpad({value}, {TEXT_BYTES}, '.') AS payload"


def incompressible(value: str) -> str:
    """A text that hardly shrinks when it is compressed, as Spark's checkpoints are."""
    digest = "base64(unhex(sha2(concat('{}', {}), 512)))"  # 88 characters or more
    digests = ", ".join(digest.format(salt, value) for salt in "abc")
    return f"rpad(concat({digests}), {TEXT_BYTES}, '.') AS payload"


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles of so many keys, whose texts are expressions of a number."""

    spark: SparkSession
    keys: int
    text: Callable[[str], str]
    workers: int

    @property
    def filling_rows(self) -> int:
        """The records of each of the epochs that fill Spark's store."""
        return max(ROWS, self.keys // FILLING)

    def initial(self, checkpoint: Path) -> Mapping[str, DataFrame] | None:
        """Of Godwit's query, if the checkpoint is new."""
        columns = ("xxhash64(id) AS k", "0L AS n", self.text("id"))
        rows = partial(known, self.spark, self.keys, *columns, partitions=self.workers)
        return initial(checkpoint, OPERATOR, rows)

    def stream(self) -> gw.Stream:
        """Godwit's query."""
        return gw.stream(self._records(ROWS)).aggregate(
            OPERATOR, key="k", n=gw.count(), payload=gw.max("payload")
        )

    def on_spark(self, rows: int = ROWS) -> DataFrame:
        """Spark's query, with so many records an epoch."""
        return self._records(rows).groupBy("k").agg(sf.count("*"), sf.max("payload"))

    def _records(self, rows: int) -> DataFrame:
        return counter(self.spark, rows, settled(self.keys), self.text("value"))
