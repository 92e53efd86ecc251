"""What was seen of a run in an open loop: when the events of each epoch became visible.

The latency of an event is the time at which the outputs of its epoch are durable and visible, less
its own intended time. An epoch is one transaction, so the outputs of moved and unmoved keys appear
together; what differs is how many of each there are in an epoch.
"""

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from godwit.workloads.latency import Histogram
from godwit.workloads.rate import SECOND, Rate

PERCENTILES: Final = (50.0, 99.0, 99.9)
SLOT: Final = 250_000  # of the timeline, in microseconds
SAMPLE: Final = 4096  # events of an epoch that are looked at
OUTLIER: Final = 5.0  # standard deviations above the mean: Falcon's mark of a disruption

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Epoch:
    """Events `first` up to `last` became visible at `delivered`, seconds after the begin.

    `moved` bins, by operator, have another worker than before, and so has a `share` of the records.
    """

    number: int
    first: int
    last: int
    delivered: float
    moved: Mapping[str, int] = field(default_factory=dict)
    share: float = 0.0
    fetched: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration of one operator; times are seconds after the begin.

    It moves `bins`, with a `share` of the bytes of the operator's state.
    """

    operator: str
    strategy: str
    bins: int
    share: float
    asked: float
    ended: float | None = None
    outcome: str = "open"

    def covers(self, first: float, last: float) -> bool:
        """Was it open at any time between the two?"""
        return self.asked <= last and (self.ended is None or first <= self.ended)


@dataclass(frozen=True, slots=True)
class Timeline:
    """By slots of 250 ms in which events took place: its begin, and the median and greatest latency
    of its events, in seconds."""

    begin: Floats
    median: Floats
    greatest: Floats


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What a migration cost, in seconds, as three papers measure it.

    Megaphone: the greatest latency, and the duration. Ding et al.: the share of the state that
    moved; beside it what was fetched, in bytes. Falcon: the disruption (how long latencies were
    above the mean of the steady state by five standard deviations), and the jitter (greatest
    latency less that mean).
    """

    operator: str
    strategy: str
    greatest: float
    duration: float | None
    share: float
    fetched: int
    disruption: float
    jitter: float


@dataclass(slots=True)
class Report:
    """The epochs and migrations of a run; the first `warm_up` seconds are not measured.

    `about` says what was run; `memory` has samples, seconds after the begin and MiB.
    """

    rate: Rate
    warm_up: float
    about: Mapping[str, Any] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)
    migrations: list[Migration] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)

    def latencies(self, epoch: Epoch) -> npt.NDArray[np.int64]:
        """Of the events of an epoch, in microseconds; of many events, some at equal distances and
        the first, which waits longest."""
        return np.int64(epoch.delivered * SECOND) - self._intended(epoch)

    def _intended(self, epoch: Epoch) -> npt.NDArray[np.int64]:
        count = min(epoch.last - epoch.first, SAMPLE)
        return self.rate.times(np.linspace(epoch.first, epoch.last, count, False).astype(np.int64))

    def measured(self) -> list[Epoch]:
        """The epochs whose events all took place after the warm-up."""
        first = self.rate.until(int(self.warm_up * SECOND) - 1)
        return [epoch for epoch in self.epochs if epoch.first >= first]

    def is_moving(self, epoch: Epoch) -> bool:
        """Whether a migration was open while its events took place or were processed."""
        began = float(self.rate.times(np.array([epoch.first]))[0]) / SECOND
        return any(one.covers(began, epoch.delivered) for one in self.migrations)

    def histograms(self) -> dict[str, Histogram]:
        """Of all events; of those in epochs while no state moved and while some did; and of the
        latter's events whose keys moved in that very epoch, and of the others."""
        found = {name: Histogram() for name in ("all", "steady", "moving", "moved", "unmoved")}
        for epoch in self.measured():
            latencies = self.latencies(epoch)
            each = (epoch.last - epoch.first) / max(len(latencies), 1)
            found["all"].add(latencies, each)
            if not self.is_moving(epoch):
                found["steady"].add(latencies, each)
                continue
            found["moving"].add(latencies, each)
            found["moved"].add(latencies, each * epoch.share)
            found["unmoved"].add(latencies, each * (1 - epoch.share))
        return {name: histogram for name, histogram in found.items() if histogram.total}

    def throughput(self) -> float:
        """Events a second, from the end of the warm-up to the last delivery."""
        epochs = self.measured()
        before = [epoch.delivered for epoch in self.epochs if epoch.last <= epochs[0].first]
        seconds = epochs[-1].delivered - (max(before) if before else self.warm_up)
        return (epochs[-1].last - epochs[0].first) / seconds

    def timeline(self) -> Timeline:
        slots: dict[int, list[npt.NDArray[np.int64]]] = {}
        for epoch in self.epochs:
            latencies, slot = self.latencies(epoch), self._intended(epoch) // SLOT
            borders = np.flatnonzero(np.diff(slot, prepend=-1, append=-1))
            for a, b in itertools.pairwise(borders):
                slots.setdefault(int(slot[a]), []).append(latencies[a:b])
        joined = [np.concatenate(parts) / SECOND for _, parts in sorted(slots.items())]
        return Timeline(
            np.array(sorted(slots)) * (SLOT / SECOND),
            np.array([np.median(one) for one in joined]),
            np.array([one.max() for one in joined]),
        )

    def disturbances(self) -> list[Disturbance]:
        """Of each migration; its epochs are those in which it was open."""
        line = self.timeline()
        ends = line.begin + line.greatest
        moving = np.zeros(len(line.begin), np.bool_)
        spans = []
        for one in self.migrations:
            ended = np.inf if one.ended is None else one.ended
            spans.append((one.asked <= ends) & (line.begin <= ended))
            moving |= spans[-1]
        steady = line.greatest[(line.begin >= self.warm_up) & ~moving]
        mean, deviation = (steady.mean(), steady.std()) if len(steady) else (0.0, 0.0)
        return [
            Disturbance(
                operator=one.operator,
                strategy=one.strategy,
                greatest=float(line.greatest[span].max(initial=0.0)),
                duration=None if one.ended is None else one.ended - one.asked,
                share=one.share,
                fetched=self._fetched(one),
                disruption=float(
                    np.sum(line.greatest[span] >= mean + OUTLIER * deviation) * SLOT / SECOND
                ),
                jitter=float(line.greatest[span].max(initial=mean) - mean),
            )
            for one, span in zip(self.migrations, spans, strict=True)
        ]

    def _fetched(self, migration: Migration) -> int:
        return sum(
            epoch.fetched
            for epoch in self.epochs
            if migration.covers(epoch.delivered, epoch.delivered)
        )

    def summary(self) -> dict[str, dict[str, float]]:
        """Latencies in seconds, by kind of events."""
        return {
            name: {
                "events": round(histogram.total),
                **{f"p{p:g}": histogram.percentile(p) / SECOND for p in PERCENTILES},
                "max": histogram.greatest / SECOND,
            }
            for name, histogram in self.histograms().items()
        }

    def to_json(self) -> dict[str, Any]:
        line = self.timeline()
        return {
            "about": dict(self.about),
            "rate": str(self.rate),
            "warm_up": self.warm_up,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "migrations": [asdict(migration) for migration in self.migrations],
            "disturbances": [asdict(one) for one in self.disturbances()],
            "latency": self.summary(),
            "timeline": np.stack([line.begin, line.median, line.greatest], 1).round(3).tolist(),
            "ccdf": {name: one.ccdf() for name, one in self.histograms().items()},
            "memory": self.memory,
        }
