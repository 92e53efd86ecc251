"""Projected migration costs, computed by Spark's tasks: a block of partitionings each.

The directory must be one that the driver and all executors see under the same path.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

BLOCKS = "block long"
_SCHEMA = pa.schema([("block", pa.int64())])


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Runs the blocks of `godwit.planner.iteration.project` as tasks, `at_once` of them a job.

    What a job has done is told when it ends; `at_once` should be some times the number of cores.
    """

    spark: SparkSession
    at_once: int = 16

    def __call__(self, solve: Callable[[int], int], blocks: Sequence[int]) -> Iterator[int]:
        for start in range(0, len(blocks), self.at_once):
            some = blocks[start : start + self.at_once]
            numbers = self.spark.range(0, len(some), 1, len(some))
            for row in numbers.mapInArrow(Solve(solve, some), BLOCKS).collect():
                yield row["block"]


@dataclass(frozen=True, slots=True)
class Solve:
    """Solves the blocks whose places in `blocks` a partition holds."""

    solve: Callable[[int], int]
    blocks: Sequence[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done = [self.solve(self.blocks[place]) for place in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"block": done}, _SCHEMA)
