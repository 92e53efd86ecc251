"""Pages of runs that were made before, with what is computed and drawn of them today.

`python -m lab.experiments.stored DIRECTORY NAME...` reads each NAME.json there, and writes it,
its page and its pictures anew; what was run, and at which commit, remains.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from pyspark.sql import SparkSession

from lab.experiments.catalog import experiment
from lab.experiments.lab import CLUSTER, Lab
from lab.experiments.page import Page
from lab.workloads.report import Report
from lab.workloads.running import Run


@dataclass(frozen=True, slots=True)
class Stored(Lab):
    """A lab that has the `reports` of all runs, by label, and runs nothing."""

    reports: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def spark(
        self, master: str = CLUSTER, conf: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[SparkSession]:
        yield cast(SparkSession, None)

    def run(self, spark: SparkSession, label: str, wanted: Run) -> Report:
        return Report.of_json(self.reports[label], closing=wanted.workload.closing)

    def other(self, label: str, make: Callable[[], Report]) -> Report:
        return Report.of_json(self.reports[label], closing=False)


def redraw(directory: Path, name: str) -> list[Path]:
    """An experiment in full from its numbers; returns what was written."""
    found = json.loads((directory / f"{name}.json").read_text())
    one = experiment(name)
    findings = one.run(Stored(True, print, found["reports"]))
    return Page(name, one.question, findings, found["environment"]).write(directory)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(*redraw(Path(sys.argv[1]), name))
