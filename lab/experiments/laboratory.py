"""Where experiments are made: Spark applications, and runs with progress."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from lab.experiments.moves import WORKERS
from lab.tools.page import Findings
from lab.tools.scale import Scale
from lab.tools.session import PLACED, application, scratch
from lab.workloads.known_counts import hash_counts
from lab.workloads.plan import WorkloadRun
from lab.workloads.rate import Rate
from lab.workloads.recorder import Say
from lab.workloads.report import RunReport
from lab.workloads.runner import run

CLUSTER: Final = "local-cluster[2,2,1536]"  # two executors, with caches of their own
LOCAL: Final = "local[2]"
SETTINGS: Final = PLACED | {"spark.driver.memory": "6g"}


@dataclass(frozen=True, slots=True)
class Experiment:
    """What answers a question, and the minutes that it takes in small and in full."""

    run: Callable[["Lab"], Findings]
    minutes: tuple[float, float]

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def question(self) -> str:
        return self.run.__doc__ or ""


@dataclass(frozen=True, slots=True)
class Lab(Scale):
    """Makes runs, and tells somebody of the progress."""

    say: Say

    @contextmanager
    def spark(
        self, master: str = CLUSTER, conf: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[SparkSession]:
        """An application of its own, after a run that warms up its JVMs."""
        with application(master, SETTINGS | dict(conf)) as (spark, _):
            workers = 2 if master == LOCAL else WORKERS
            counts = hash_counts(100_000)
            self.run(
                spark, "warming up", WorkloadRun(counts, Rate.parse("20k"), workers, 25.0, 0.0)
            )
            yield spark

    def run(self, spark: SparkSession, label: str, wanted: WorkloadRun) -> RunReport:
        """One run, in a directory that is deleted afterwards."""
        self.say(f"{label}: {wanted.seconds:.0f} s")
        with scratch() as directory:
            report = run(spark, wanted, directory, lambda line: self.say(f"  {line}"))
        report.about = {**report.about, "label": label}
        return report

    def other(self, label: str, make: Callable[[], RunReport]) -> RunReport:
        """What is no run of a workload."""
        self.say(label)
        return make()
