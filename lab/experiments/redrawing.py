"""Pages of runs that were made before, with what is computed and drawn of them today.

What was run, and at which commit, remains.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from pyspark.sql import SparkSession

from lab.experiments.catalog import experiment
from lab.experiments.laboratory import CLUSTER, Lab
from lab.tools.page import Page
from lab.workloads.plan import WorkloadRun
from lab.workloads.report import RunReport


@dataclass(frozen=True, slots=True)
class RecordedLab(Lab):
    """A lab that has the `reports` of all runs, by label, and runs nothing."""

    reports: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def spark(
        self, master: str = CLUSTER, conf: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[SparkSession]:
        yield cast(SparkSession, None)

    def run(self, spark: SparkSession, label: str, wanted: WorkloadRun) -> RunReport:
        return RunReport.of_json(self.reports[label], closing=wanted.workload.closing)

    def other(self, label: str, make: Callable[[], RunReport]) -> RunReport:
        return RunReport.of_json(self.reports[label], closing=False)


def redraw(directory: Path, name: str) -> list[Path]:
    """An experiment in full from its numbers; returns what was written."""
    found = json.loads((directory / f"{name}.json").read_text())
    one = experiment(name)
    findings = one.run(RecordedLab(True, print, found["reports"]))
    return Page(name, one.question, findings, found["environment"]).write(directory)
