"""What a question found: a JSON file under `lab/results/`, and numbers in words."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from lab.bench.application import Bench
from lab.tools.environment import ROOT, git, machine, versions
from lab.tools.tables import show_table
from lab.tools.turns import WARM_UP, Turn

RESULTS: Final = ROOT / "lab" / "results"


@dataclass(frozen=True, slots=True)
class BenchResults:
    """The findings of one question, case by case, with all that is needed to judge them."""

    question: str
    bench: Bench
    settings: Mapping[str, Any]
    cases: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: Mapping[str, Any], **findings: Any) -> None:
        """Take down a case and save what there is so far."""
        measured = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": git("rev-parse", "HEAD"),
            "changed": bool(git("status", "--porcelain", "src", "lab", ":!lab/results")),
        }
        self.cases.append({"case": dict(case), "measured": measured, **findings})
        self.save()

    def save(self) -> None:
        """Cases that this run has not measured stay as they were."""
        suffix = ".json" if self.bench.full else ".quick.json"
        path = RESULTS / f"{self.question}{suffix}"
        before = json.loads(path.read_text())["cases"] if path.exists() else []
        before = [one for one in before if "measured" in one]
        known = [one["case"] for one in self.cases]
        text = json.dumps(
            {
                "question": self.question,
                "quick": not self.bench.full,
                "machine": machine(),
                "versions": _versions(self.bench),
                "settings": {
                    "spark": self.bench.conf,
                    "warm_up_epochs": WARM_UP,
                    "repetitions": self.bench.repetitions,
                    **self.settings,
                },
                "cases": [one for one in before if one["case"] not in known] + self.cases,
            },
            indent=1,
        )
        RESULTS.mkdir(exist_ok=True)
        path.write_text(text + "\n")


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, extremes and all of the values.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'min': 1.0, 'max': 3.0, 'each': [3.0, 1.0, 2.0]}
    """
    rounded = [float(f"{value:.4g}") for value in values]
    return {
        "median": statistics.median(rounded),
        "min": min(rounded),
        "max": max(rounded),
        "each": rounded,
    }


def summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """Throughput by turn, and the times of all epochs."""
    seconds = [second for turn in turns for second in turn.seconds]
    return {
        "rows_per_epoch": sorted({epoch.rows for turn in turns for epoch in turn.epochs}),
        "records_per_second": spread([turn.rate for turn in turns]),
        "epoch_seconds": {
            "median": round(statistics.median(seconds), 4),
            "p99": round(float(np.percentile(seconds, 99)), 4),
            "max": max(seconds),
            "count": len(seconds),
            "each": [turn.seconds for turn in turns],
        },
    }


def ratios(ours: Sequence[Turn], theirs: Sequence[Turn]) -> dict[str, Any]:
    """How many times the throughput of `theirs` ours has, turn by turn."""
    return spread([one.rate / other.rate for one, other in zip(ours, theirs, strict=True)])


def slower(ours: Sequence[Turn], theirs: Sequence[Turn]) -> dict[str, Any]:
    """How many times as long as those of `theirs` our epochs take, turn by turn."""
    return spread(
        [
            statistics.median(one.seconds) / statistics.median(other.seconds)
            for one, other in zip(ours, theirs, strict=True)
        ]
    )


def show(found: Mapping[str, Any], pattern: str = "{:.3g}") -> str:
    """A spread in words: the median, and in brackets the extremes."""
    median, low, high = (pattern.format(found[name]) for name in ("median", "min", "max"))
    return f"{median} ({low}-{high})"


def show_contenders(
    found: Mapping[str, Mapping[str, Any]], over: Mapping[str, Mapping[str, Any]], last: str
) -> None:
    """A table of summaries; the column called `last` is a ratio, for contenders that have one."""
    lines = [
        [
            name,
            show(one["records_per_second"], "{:,.0f}"),
            one["epoch_seconds"]["median"],
            one["epoch_seconds"]["p99"],
            show(over[name]) if name in over else "",
        ]
        for name, one in found.items()
    ]
    show_table(["contender", "records/s", "epoch s", "p99 s", last], lines)


def _versions(bench: Bench) -> dict[str, str]:
    jvm: Any = bench.spark._jvm
    java: str = jvm.java.lang.System.getProperty("java.version")
    return versions("pandas", "protobuf") | {"java": java}
