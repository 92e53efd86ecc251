"""The numbers of epochs as a text file that Prometheus collects; no port is opened."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from godwit.inspect.report import EpochReport

Values = Sequence[tuple[dict[str, str], float]]

_OPERATOR_GAUGES = {
    "workers": "Workers of the operator",
    "moved": "Bins that changed worker in the newest epoch",
    "left": "Bins still to move in the open migration",
}
_WORKER_GAUGES = {
    "records": "Records of a worker in the newest epoch",
    "rows": "Rows of state that a worker changed in the newest epoch",
    "fetched": "Bytes that a worker fetched in the newest epoch",
}
_OPERATOR_COUNTERS = {
    "records": "Records received",
    "late": "Records that came too late, or without a time",
    "outputs": "Rows put out",
    "rows": "Rows of state changed",
    "bytes": "Bytes of state changed",
    "merged": "Bytes of state rewritten by merges",
    "fetched": "Bytes fetched into executors' caches",
}


class PrometheusFile:
    """A listener that keeps `path` up to date, for a textfile collector.

    Counters count from the start of the process, as Prometheus expects them to. With a `query`, all
    metrics have that as a label, so that those of several queries can be told apart.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "counts.prom"
    >>> listener = PrometheusFile(path, query="counts")  # job.start(..., listener=listener)
    >>> listener(EpochReport(epoch=7, seconds=0.5, parts={}, operators={}))
    >>> path.read_text().splitlines()[2]
    'godwit_epoch{query="counts"} 7'
    """

    def __init__(self, path: str | Path, query: str | None = None) -> None:
        self._path = Path(path)
        self._labels = {} if query is None else {"query": query}
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
        yield from self._metric("epoch", "gauge", "The newest epoch", [({}, report.epoch)])
        yield from self._metric("epochs_total", "counter", "Epochs run", [({}, self._epochs)])
        if report.backlog is not None:
            yield from self._metric(
                "backlog", "gauge", "Offsets left to read", [({}, report.backlog)]
            )
        if report.unread is not None:
            yield from self._metric(
                "unread_files", "gauge", "Files left to read", [({}, report.unread.files)]
            )
            yield from self._metric(
                "unread_oldest_seconds",
                "gauge",
                "Age of the oldest file that is left to read",
                [({}, report.unread.seconds)],
            )
        parts = [({"part": part}, seconds) for part, seconds in report.parts.items()]
        yield from self._metric(
            "epoch_seconds", "gauge", "Seconds of the newest epoch, by part", parts
        )
        operators = report.operators.items()
        yield from self._metric(
            "worker_seconds",
            "gauge",
            "Seconds of a worker in the newest epoch, by part of its work",
            [
                ({"operator": name, "worker": str(one.worker), "part": part}, seconds)
                for name, operator in operators
                for one in operator.by_worker
                for part, seconds in one.seconds.items()
            ],
        )
        for column, help in _WORKER_GAUGES.items():
            yield from self._metric(
                f"worker_{column}",
                "gauge",
                help,
                [
                    ({"operator": name, "worker": str(one.worker)}, getattr(one, column))
                    for name, operator in operators
                    for one in operator.by_worker
                ],
            )
        for column, help in _OPERATOR_GAUGES.items():
            values = [
                ({"operator": name}, getattr(operator, column)) for name, operator in operators
            ]
            yield from self._metric(column, "gauge", help, values)
        yield from self._metric(
            "watermark_seconds",
            "gauge",
            "Event time up to which no more records are expected",
            [
                ({"operator": name}, operator.watermark / 1_000_000)
                for name, operator in operators
                if operator.watermark is not None
            ],
        )
        yield from self._metric(
            "worker_executor",
            "gauge",
            "1 for the executor that a worker ran on in the newest epoch",
            [({"worker": str(w), "executor": e}, 1) for w, e in report.executors.items() if e],
        )
        replicas = [({"worker": str(r.worker), "executor": r.executor}, r) for r in report.replicas]
        yield from self._metric(
            "replica_lag",
            "gauge",
            "Epochs that a replica is behind; all, if nothing is known of it",
            [(labels, replica.lag) for labels, replica in replicas],
        )
        yield from self._metric(
            "replica_lacking_bytes",
            "gauge",
            "Bytes that a replica has to fetch",
            [(labels, r.lacking) for labels, r in replicas if r.lacking is not None],
        )
        for column, help in _OPERATOR_COUNTERS.items():
            totals = [({"operator": name}, self._totals[column, name]) for name, _ in operators]
            yield from self._metric(f"{column}_total", "counter", help, totals)

    def _metric(self, name: str, kind: str, help: str, values: Values) -> Iterator[str]:
        yield f"# HELP godwit_{name} {help}"
        yield f"# TYPE godwit_{name} {kind}"
        for labels, value in values:
            pairs = ",".join(
                f"{key}={json.dumps(text)}" for key, text in (self._labels | labels).items()
            )
            yield f"godwit_{name}" + (f"{{{pairs}}}" if pairs else "") + f" {round(value, 6)}"
