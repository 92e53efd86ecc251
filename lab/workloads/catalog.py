"""All workloads by name: what each computes, and over which source."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.errors import ConfigError
from lab.workloads import counts, patterns, roads
from lab.workloads.nexmark import queries, sql_suite

NEXMARK: Final = "nexmark"
NUMBERED: Final = "numbered"

Results = Mapping[str, gw.Stream]  # of a query that has several, by their names


@dataclass(frozen=True, slots=True)
class Workload:
    """A query over the events of a source: Godwit's, with one result or several, or a DataFrame
    that is Spark's own business.

    `known` gives the state that it begins with; `mode` is Spark's output mode for its own queries;
    `options` are the source's. The outputs of a `closing` one wait for windows to close, and so for
    the epoch after.
    """

    name: str
    source: str
    make: Callable[[DataFrame], gw.Stream | Results | DataFrame]
    known: Callable[[SparkSession], Mapping[str, DataFrame]] | None = None
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    closing: bool = False

    def initial(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        return self.known(spark) if self.known else {}

    @property
    def about(self) -> str:
        """What it computes: the first line of its docstring."""
        make = self.make.func if isinstance(self.make, partial) else self.make
        return (make.__doc__ or "").splitlines()[0]


def _workloads() -> Iterator[Workload]:
    """With windows that close, and cars that stop, within a run of a minute."""
    yield Workload("q1", NEXMARK, queries.q1)
    yield Workload("q2", NEXMARK, queries.q2)
    yield Workload("q3", NEXMARK, queries.q3)
    yield Workload("q4", NEXMARK, queries.q4, closing=True)
    yield Workload("q5", NEXMARK, partial(queries.q5, length="10 s", slide="1 s"), closing=True)
    yield Workload("q6", NEXMARK, queries.q6, closing=True)
    yield Workload("q4-q6-q9", NEXMARK, queries.q4_q6_q9, closing=True)
    yield Workload("q7", NEXMARK, partial(queries.q7, length="10 s"), closing=True)
    yield Workload("q8", NEXMARK, partial(queries.q8, length="10 s"))
    yield Workload("q9", NEXMARK, queries.q9, closing=True)
    yield Workload("q11", NEXMARK, partial(sql_suite.q11, gap="2 s"), closing=True)
    yield Workload("q13", NEXMARK, sql_suite.q13)
    yield Workload("q14", NEXMARK, sql_suite.q14)
    yield Workload("q15", NEXMARK, sql_suite.q15)
    yield Workload("q16", NEXMARK, sql_suite.q16)
    yield Workload("q17", NEXMARK, sql_suite.q17)
    yield Workload("q18", NEXMARK, sql_suite.q18)
    yield Workload("q19", NEXMARK, sql_suite.q19)
    yield Workload("q20", NEXMARK, sql_suite.q20)
    yield Workload("q21", NEXMARK, sql_suite.q21)
    yield Workload("q22", NEXMARK, sql_suite.q22)
    hot_items = partial(queries.hot_items, length="10 s", slide="2 s", delay="0 s")
    yield Workload("nbq5", NEXMARK, hot_items, closing=True)
    nbqx = partial(queries.nbqx, gaps=("2 s", "4 s", "6 s", "8 s"), length="16 s")
    yield Workload("nbqx", NEXMARK, nbqx, closing=True)
    yield Workload("word-count", NUMBERED, counts.word_count)
    yield Workload("hash-count", NUMBERED, counts.hash_count)
    yield Workload("key-count", NUMBERED, counts.key_count)
    frequent = partial(patterns.frequent_patterns, words=100, window="10 s")
    yield Workload("frequent-patterns", NUMBERED, frequent, closing=True)
    yield Workload("traffic", NUMBERED, roads.traffic)
    yield Workload("tolls", NUMBERED, partial(roads.tolls, length="10 s"), closing=True)
    yield Workload("accidents", NUMBERED, partial(roads.accidents, cars=5000))


WORKLOADS: Final = {one.name: one for one in _workloads()}


def workload(name: str) -> Workload:
    """The workload of this name, or ConfigError."""
    if name not in WORKLOADS:
        raise ConfigError(f"there is no workload '{name}', but {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
