"""The numbers of epochs as a text file that Prometheus collects; no port is opened."""

import os
from collections.abc import Iterator
from pathlib import Path

from godwit.runtime.report import EpochReport

_OPERATOR_GAUGES = {
    "workers": "Workers of the operator",
    "moved": "Bins that changed worker in the newest epoch",
    "left": "Bins still to move in the open migration",
}
_OPERATOR_COUNTERS = {
    "records": "Records received",
    "late": "Records dropped because they came too late",
    "outputs": "Rows put out",
    "rows": "Rows of state changed",
    "bytes": "Bytes of state changed",
    "merged": "Bytes of state rewritten by merges",
    "fetched": "Bytes fetched into executors' caches",
}


class PrometheusFile:
    """A listener that keeps `path` up to date, for a textfile collector.

    Counters count from the start of the process, as Prometheus expects them to.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._epochs = 0
        self._totals: dict[tuple[str, str], int] = {}

    def __call__(self, report: EpochReport) -> None:
        self._epochs += 1
        for name, operator in report.operators.items():
            for column in _OPERATOR_COUNTERS:
                key = (column, name)
                self._totals[key] = self._totals.get(key, 0) + getattr(operator, column)
        draft = self._path.with_name(f".{self._path.name}")
        draft.write_text("\n".join(self._lines(report)) + "\n")
        os.replace(draft, self._path)

    def _lines(self, report: EpochReport) -> Iterator[str]:
        yield from _metric("godwit_epoch", "gauge", "The newest epoch", {"": report.epoch})
        yield from _metric("godwit_epochs_total", "counter", "Epochs run", {"": self._epochs})
        parts = {f'{{part="{part}"}}': seconds for part, seconds in report.parts.items()}
        yield from _metric(
            "godwit_epoch_seconds", "gauge", "Seconds of the newest epoch, by part", parts
        )
        for column, help in _OPERATOR_GAUGES.items():
            values = {
                f'{{operator="{name}"}}': getattr(operator, column)
                for name, operator in report.operators.items()
            }
            yield from _metric(f"godwit_{column}", "gauge", help, values)
        yield from _metric(
            "godwit_watermark_seconds",
            "gauge",
            "Event time up to which no more records are expected",
            {
                f'{{operator="{name}"}}': operator.watermark / 1_000_000
                for name, operator in report.operators.items()
                if operator.watermark is not None
            },
        )
        for column, help in _OPERATOR_COUNTERS.items():
            values = {
                f'{{operator="{name}"}}': self._totals[column, name] for name in report.operators
            }
            yield from _metric(f"godwit_{column}_total", "counter", help, values)


def _metric(name: str, kind: str, help: str, values: dict[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{labels} {round(value, 6)}"
