"""What a question found: a JSON file under `results/`, and tables on standard output."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.harness import WARM_UP, Bench, Turn

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("godwit", "pyspark", "pyarrow", "numpy", "pandas", "protobuf")


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one question, case by case, with all that is needed to judge them."""

    question: str
    bench: Bench
    settings: Mapping[str, Any]
    cases: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: Mapping[str, Any], **findings: Any) -> None:
        """Take down a case and save what there is so far."""
        measured = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": _git("rev-parse", "HEAD"),
            "changed": bool(_git("status", "--porcelain", "src", "bench")),
        }
        self.cases.append({"case": dict(case), "measured": measured, **findings})
        self.save()

    def save(self) -> None:
        """Cases that this run has not measured stay as they were."""
        suffix = ".quick.json" if self.bench.quick else ".json"
        path = RESULTS / f"{self.question}{suffix}"
        before = json.loads(path.read_text())["cases"] if path.exists() else []
        before = [one for one in before if "measured" in one]
        known = [one["case"] for one in self.cases]
        text = json.dumps(
            {
                "question": self.question,
                "quick": self.bench.quick,
                "machine": _machine(),
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


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their head, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]
    lines = [list(head), ["-" * width for width in widths], *cells]
    print()
    for line in lines:
        pairs = zip(line, widths, numeric, strict=True)
        print("  ".join(text.rjust(w) if n else text.ljust(w) for text, w, n in pairs).rstrip())
    print(flush=True)


def show(found: Mapping[str, Any], pattern: str = "{:.3g}") -> str:
    """A spread in words: the median, and in brackets the extremes."""
    median, low, high = (pattern.format(found[name]) for name in ("median", "min", "max"))
    return f"{median} ({low}-{high})"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
        "load_average": os.getloadavg(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _versions(bench: Bench) -> dict[str, str]:
    jvm: Any = bench.spark._jvm
    return {
        "python": platform.python_version(),
        "java": jvm.java.lang.System.getProperty("java.version"),
        **{package: version(package) for package in PACKAGES},
    }
