"""What the events of a run say, one by one: computed from its recorded epochs and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EventTruth:
    """When each event took place and when it was visible, in seconds; and whether it counts."""

    at: Seconds
    visible: Seconds
    is_answered: npt.NDArray[np.bool_]  # before the end of the run
    is_measured: npt.NDArray[np.bool_]  # in an epoch without events of the warm-up

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> "EventTruth":
        """From a report as it is stored."""
        epochs = [one for one in report["epochs"] if one["last"] > one["first"]]
        moments = _moments(report["rate"], epochs[-1]["last"])
        at = moments / 1e6
        visible = np.zeros(len(at))
        answered, measured = np.zeros((2, len(at)), bool)
        for one in report["epochs"]:
            events = slice(one["first"], one["last"])
            after = [other for other in report["epochs"] if other["number"] > one["number"]]
            closes = report["closing"] and after
            visible[events] = (after[0] if closes else one)["delivered"]
            answered[events] = not report["closing"] or one is not epochs[-1] or len(epochs) == 1
            if one["last"] > one["first"]:
                measured[events] = moments[one["first"]] >= _warm(report)
        return cls(at, visible, answered, measured)

    @property
    def latency(self) -> Seconds:
        return self.visible - self.at

    @property
    def timed(self) -> Seconds:
        """The latencies that are measured."""
        return self.latency[self.is_answered & self.is_measured]

    def mean_of_medians(self, begin: float, end: float) -> float:
        """The mean over slots of a quarter of a second of the median latency of their events."""
        slots = np.floor(self.at / 0.25 + 1e-9)
        inside = self.is_answered & (0.25 * slots >= begin) & (0.25 * slots < end)
        medians = [np.median(self.latency[inside & (slots == slot)]) for slot in set(slots[inside])]
        return float(np.mean(medians))

    def between(self, begin: float, end: float) -> Seconds:
        """The latencies of events that were waiting at some time between two moments."""
        return self.latency[self.is_answered & (self.visible >= begin) & (self.at <= end)]


def throughput(report: Mapping[str, Any]) -> float:
    """Events a second, from the delivery before the first measured epoch to the last one."""
    epochs = report["epochs"]
    measured = [one for one in epochs if _moment(report, one["first"]) >= _warm(report)]
    before = [one["delivered"] for one in epochs if one["last"] <= measured[0]["first"]]
    begin = max(before, default=report["warm_up"])
    events = measured[-1]["last"] - measured[0]["first"]
    return float(events / (measured[-1]["delivered"] - begin))


def _warm(report: Mapping[str, Any]) -> int:
    """The end of the warm-up, in whole microseconds."""
    return int(report["warm_up"] * 1e6)


def _moment(report: Mapping[str, Any], event: int) -> int:
    """When an event takes place, in whole microseconds."""
    begin = 0
    while True:
        for number, length in _stretches(report["rate"]):
            if event < number:
                return begin + event * length // number
            begin, event = begin + length, event - number


def _moments(rate: str, events: int) -> npt.NDArray[np.int64]:
    """When so many events take place, in whole microseconds."""
    parts: list[npt.NDArray[np.int64]] = []
    begin, count = 0, 0
    while count < events:
        for number, length in _stretches(rate):
            wanted = np.arange(min(number, events - count), dtype=np.int64)
            parts.append(begin + wanted * length // number)
            begin, count = begin + length, count + number
            if count >= events:
                break
    return np.concatenate(parts)


def _stretches(rate: str) -> list[tuple[int, int]]:
    """Events and microseconds of each stretch of a rate, which follow each other for ever."""
    found = [stretch.removesuffix(" us").split(" for ") for stretch in rate.split(", ")]
    return [(round(float(a) * int(length) / 1e6), int(length)) for a, length in found]
