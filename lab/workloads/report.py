"""What was seen of a run in an open loop: when the events of each epoch became visible.

The latency of an event is the time at which its outputs are durable and visible, less its own
intended time. They come with its epoch; but if they wait for windows to close, then with the next
one, as the watermark of an epoch is that of the epochs before: every event counts as if it closed a
window. An epoch is one transaction, so the outputs of moved and unmoved keys appear together; what
differs is how many of each there are in an epoch.

Events of the warm-up are not measured. Neither is the end of a run, once all events have been
delivered: epochs that end migrations and close the windows that are left have no events; and where
outputs wait for the next epoch, the events of the last one have no latency, since there is no next.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from lab.workloads.latency import Histogram
from lab.workloads.rate import SECOND, Rate

PERCENTILES: Final = (50.0, 99.0, 99.9)
SLOT: Final = 250_000  # of the timeline, in microseconds
SAMPLE: Final = 4096  # events of an epoch that are looked at
OUTLIER: Final = 5.0  # standard deviations above the mean: Falcon's mark of a disruption

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DeliveredEpoch:
    """Events `first` up to `last` became visible at `delivered`, seconds since the start.

    `moved` bins, by operator, have another worker than before, and so has a `share` of the records.
    """

    number: int
    first: int
    last: int
    delivered: float
    moved: Mapping[str, int] = field(default_factory=dict)
    share: float = 0.0
    fetched: Mapping[str, int] = field(default_factory=dict)  # bytes, by operator


@dataclass(frozen=True, slots=True)
class ObservedMigration:
    """A migration of one operator; times are seconds since the start.

    It moves `bins`, with a `share` of the bytes of the operator's state. If it is an executor that
    left, these are the bins of its workers, and the strategy says how it did.
    """

    operator: str
    strategy: str
    bins: int
    share: float
    asked: float
    ended: float | None = None
    outcome: str = "open"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run took: processor `seconds` of all processes. Of these, the keepers of replicas had
    `kept_seconds`; they have read so many bytes, and have so many MiB in memory at the end."""

    seconds: float
    kept_seconds: float = 0.0
    kept_bytes: int = 0
    kept_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class LatencyTimeline:
    """By slots of 250 ms in which events took place: its start, and the median and greatest latency
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
    latency less that mean); None if there was no steady state before.
    """

    operator: str
    strategy: str
    outcome: str
    greatest: float
    duration: float | None
    share: float
    fetched: int
    disruption: float | None
    jitter: float | None


@dataclass(slots=True)
class RunReport:
    """The epochs and migrations of a run; the first `warm_up` seconds are not measured.

    Epochs are only added.
    `about` says what was run, and `closing` whether its outputs wait for windows to close; `memory`
    has samples, seconds since the start and MiB. `ending` says why it ended early, if it did.
    """

    rate: Rate
    warm_up: float
    about: Mapping[str, Any] = field(default_factory=dict)
    epochs: list[DeliveredEpoch] = field(default_factory=list)
    migrations: list[ObservedMigration] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    usage: Usage | None = None
    closing: bool = False
    ending: str = ""
    _line: tuple[object, LatencyTimeline] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @classmethod
    def of_json(cls, found: Mapping[str, Any], *, closing: bool) -> Self:
        """What `to_json` gave; all that is computed, is computed anew."""
        return cls(
            Rate.parse(found["rate"]),
            found["warm_up"],
            found["about"],
            [DeliveredEpoch(**epoch) for epoch in found["epochs"]],
            [ObservedMigration(**migration) for migration in found["migrations"]],
            [(at, mib) for at, mib in found["memory"]],
            Usage(**found["usage"]) if found.get("usage") else None,
            closing,
            found.get("ending", ""),
        )

    def visible(self, epoch: DeliveredEpoch) -> float:
        """When the outputs of its events are visible, in seconds since the start."""
        after = bisect_right(self.epochs, epoch.number, key=lambda one: one.number)
        is_last = after == len(self.epochs)
        return self.epochs[after].delivered if self.closing and not is_last else epoch.delivered

    def answered(self) -> list[DeliveredEpoch]:
        """The epochs with events whose outputs came before the end of the run, if any did."""
        epochs = [epoch for epoch in self.epochs if epoch.last > epoch.first]
        return epochs[:-1] if self.closing and len(epochs) > 1 else epochs

    def latencies(self, epoch: DeliveredEpoch) -> npt.NDArray[np.int64]:
        """Of the events of an epoch, in microseconds; of many events, some at equal distances and
        the first, which waits longest."""
        return np.int64(self.visible(epoch) * SECOND) - self._intended(epoch)

    def _intended(self, epoch: DeliveredEpoch) -> npt.NDArray[np.int64]:
        count = min(epoch.last - epoch.first, SAMPLE)
        return self.rate.times(np.linspace(epoch.first, epoch.last, count, False).astype(np.int64))

    def measured(self) -> list[DeliveredEpoch]:
        """The epochs whose events all took place after the warm-up."""
        first = self.rate.until(int(self.warm_up * SECOND) - 1)
        return [epoch for epoch in self.epochs if epoch.last > epoch.first >= first]

    def timed(self) -> list[DeliveredEpoch]:
        """The measured epochs whose outputs came before the end of the run."""
        answered = {epoch.number for epoch in self.answered()}
        return [epoch for epoch in self.measured() if epoch.number in answered]

    def steady(self) -> Floats:
        """The greatest latencies of slots after the warm-up and before anything moved."""
        line = self.timeline()
        first = min((one.asked for one in self.migrations), default=np.inf)
        return line.greatest[(line.begin >= self.warm_up) & (line.begin + line.greatest < first)]

    def spans(self) -> list[tuple[float, float]]:
        """From when to when each migration is felt: until latencies are again what they were, or
        the next migration is asked for."""
        line, steady = self.timeline(), self.steady()
        usual = _outlier(steady) if len(steady) else np.inf
        found = []
        for one in self.migrations:
            ended = np.inf if one.ended is None else one.ended
            calm = line.begin[(line.begin >= ended) & (line.greatest < usual)]
            later = [other.asked for other in self.migrations if other.asked > one.asked]
            found.append((one.asked, min([*calm[:1], *later], default=np.inf)))
        return found

    def histograms(self) -> dict[str, Histogram]:
        """Of all events; of those in epochs while no state moved and while some did; and of the
        latter's events whose keys moved in that very epoch, and of the others."""
        found = {name: Histogram() for name in ("all", "steady", "moving", "moved", "unmoved")}
        spans = self.spans()
        for epoch in self.timed():
            latencies = self.latencies(epoch)
            each = (epoch.last - epoch.first) / max(len(latencies), 1)
            found["all"].add(latencies, each)
            if not self._is_moving(epoch, spans):
                found["steady"].add(latencies, each)
                continue
            found["moving"].add(latencies, each)
            found["moved"].add(latencies, each * epoch.share)
            found["unmoved"].add(latencies, each * (1 - epoch.share))
        return {name: histogram for name, histogram in found.items() if histogram.total}

    def _began(self, epoch: DeliveredEpoch) -> float:
        """When its first event took place."""
        return float(self.rate.times(np.array([epoch.first]))[0]) / SECOND

    def _is_moving(self, epoch: DeliveredEpoch, spans: Sequence[tuple[float, float]]) -> bool:
        visible, began = self.visible(epoch), self._began(epoch)
        return any(first <= visible and began <= last for first, last in spans)

    def throughput(self) -> float:
        """Events a second, from the end of the warm-up to the delivery of the last of them."""
        epochs = self.measured()
        before = [epoch.delivered for epoch in self.epochs if epoch.last <= epochs[0].first]
        seconds = epochs[-1].delivered - (max(before) if before else self.warm_up)
        return (epochs[-1].last - epochs[0].first) / seconds

    def timeline(self) -> LatencyTimeline:
        """Of all epochs so far; made once, and anew when there are more of them."""
        known = len(self.epochs), self.closing
        if self._line is None or self._line[0] != known:
            self._line = known, self._timeline_of(self.answered())
        return self._line[1]

    def _timeline_of(self, epochs: Iterable[DeliveredEpoch]) -> LatencyTimeline:
        slots: dict[int, list[npt.NDArray[np.int64]]] = {}
        for epoch in epochs:
            latencies, slot = self.latencies(epoch), self._intended(epoch) // SLOT
            borders = np.flatnonzero(np.diff(slot, prepend=-1, append=-1))
            for a, b in itertools.pairwise(borders):
                slots.setdefault(int(slot[a]), []).append(latencies[a:b])
        joined = [np.concatenate(parts) / SECOND for _, parts in sorted(slots.items())]
        return LatencyTimeline(
            np.array(sorted(slots)) * (SLOT / SECOND),
            np.array([np.median(one) for one in joined]),
            np.array([one.max() for one in joined]),
        )

    def slowest(self) -> tuple[float, float, bool] | None:
        """When the slowest of the measured events took place, its latency, both in seconds, and
        whether state moved meanwhile; None if nothing was measured."""
        found = [(int(self.latencies(epoch)[0]), epoch) for epoch in self.timed()]
        if not found:
            return None
        greatest, epoch = max(found, key=lambda one: one[0])
        return self._began(epoch), greatest / SECOND, self._is_moving(epoch, self.spans())

    def disturbances(self) -> list[Disturbance]:
        """Of each migration, as long as it is felt, by the measured events: those of the warm-up
        may still wait when it begins, but not because of it."""
        line, steady = self._timeline_of(self.timed()), self.steady()
        found = []
        for one, (first, last) in zip(self.migrations, self.spans(), strict=True):
            felt = line.greatest[(line.begin + line.greatest >= first) & (line.begin <= last)]
            greatest, disruption, jitter = float(felt.max(initial=0.0)), None, None
            if len(steady):
                disruption = float(np.sum(felt >= _outlier(steady)) * SLOT / SECOND)
                jitter = max(0.0, greatest - float(steady.mean()))
            fetched = sum(
                epoch.fetched.get(one.operator, 0)
                for epoch in self.epochs
                if first <= epoch.delivered <= (last if one.ended is None else one.ended)
            )
            duration = None if one.ended is None else one.ended - one.asked
            told = (one.operator, one.strategy, one.outcome, greatest, duration, one.share)
            found.append(Disturbance(*told, fetched, disruption, jitter))
        return found

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
            "usage": self.usage and asdict(self.usage),
            "closing": self.closing,
            "ending": self.ending,
        }


def _outlier(steady: Floats) -> float:
    return float(steady.mean() + OUTLIER * steady.std())
