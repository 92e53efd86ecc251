"""All workloads by name: what each computes, and over which source."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

import godwit as gw
from godwit.errors import ConfigError
from godwit.workloads import counts, patterns, roads
from godwit.workloads.nexmark import queries

NEXMARK: Final = "nexmark"
NUMBERED: Final = "numbered"


@dataclass(frozen=True, slots=True)
class Workload:
    """A query over the events of a source."""

    name: str
    source: str
    make: Callable[[DataFrame], gw.Stream]

    @property
    def about(self) -> str:
        """What it computes: the first line of its docstring."""
        make = self.make.func if isinstance(self.make, partial) else self.make
        return (make.__doc__ or "").splitlines()[0]


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        *(
            Workload(make.__name__, NEXMARK, make)
            for make in (queries.q3, queries.q4, queries.q5, queries.q6, queries.q7, queries.q8)
        ),
        Workload("nbq5", NEXMARK, queries.nbq5),
        Workload("nbqx", NEXMARK, partial(queries.nbqx, window=gw.session("30 min"))),
        *(
            Workload(make.__name__.replace("_", "-"), NUMBERED, make)
            for make in (
                *(counts.word_count, counts.hash_count, counts.key_count),
                patterns.frequent_patterns,
                *(roads.traffic, roads.tolls, roads.accidents),
            )
        ),
    )
}


def workload(name: str) -> Workload:
    """The workload of this name, or ConfigError."""
    if name not in WORKLOADS:
        raise ConfigError(f"there is no workload '{name}', but {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
