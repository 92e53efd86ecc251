"""Whether an idle query should run another epoch."""

import time
from collections.abc import Callable

from godwit.driver.monitor import Monitor
from godwit.driver.placements import Placements
from godwit.driver.published import Published
from godwit.driver.timelines import Timelines
from godwit.log.journal import Journal
from godwit.log.ticks import SeenTicks
from godwit.model.ids import Epoch


class Demand:
    """What waits for an epoch, with records or without; any thread may ask.

    As long as something that was accepted is open, or a row waits for a moment that has come, an
    epoch is wanted. So an idle query brings to an end what it has begun. One is also wanted if the
    moment has come once it shows that a source is idle.
    """

    def __init__(
        self,
        journal: Journal,
        monitor: Monitor,
        timelines: Timelines,
        placements: Placements,
        published: Published,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._monitor = monitor
        self._timelines = timelines
        self._placements = placements
        self._published = published
        self._clock = clock
        self._ignores_requests = False
        self._seen_ticks = SeenTicks(journal.files)

    @property
    def wants_epoch(self) -> bool:
        """Does something wait that somebody asked for, or a timer?"""
        with self._monitor:
            moving = self._timelines.are_open or self._placements.are_open
            due = self._published.time.is_due(self._published.trees, self._clock())
            return (moving and not self._ignores_requests) or due

    @property
    def awaits_silence(self) -> bool:
        """Might an epoch be wanted once a source has been silent for long enough?"""
        with self._monitor:
            return self._published.time.awaits_silence(self._published.trees)

    @property
    def can_settle(self) -> bool:
        """Would an epoch bring a handover further, also one that nobody asked for, or tell keepers
        and people where workers went when an executor was lost in the last one?"""
        if self._ignores_requests:
            return False
        return self._placements.can_settle(Epoch(self._timelines.begun + 1))

    def ignore_requests(self) -> None:
        """Run no more epochs for requests alone: what is open goes on at the next start."""
        self._ignores_requests = True

    def tick(self) -> None:
        """Ask for an epoch."""
        self._journal.tick()

    def sweep_ticks(self) -> None:
        """An epoch begins: what asked for those before is done with."""
        self._seen_ticks.sweep()
