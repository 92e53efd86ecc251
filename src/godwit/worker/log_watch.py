"""What a keeper asks of the checkpoint's log, and when it looks."""

import time
from collections.abc import Callable
from typing import Final

from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest

SOON: Final = 0.1  # seconds until the first look for a manifest
QUIET: Final = 4.0  # for each executor, the seconds between two looks when nothing happens


class LogWatch:
    """The newest intent and manifest that are known.

    Tasks tell which epoch has begun, so its intent is there, and the manifest of the one before it.
    Its own manifest is looked for again and again, each time after twice as long; then it is rarely
    looked whether a further epoch has begun of which nobody told. So all keepers of a query that is
    idle together ask the store less than once a second.
    """

    def __init__(
        self,
        history: History,
        generation: int,
        begun: Epoch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history = history
        self._generation = generation
        self._clock = clock
        self._begun = self._told = begun
        self._wait = SOON
        self._due = 0.0
        self.manifest: Manifest | None = None
        self.intent: Intent | None = None
        self.is_over = False  # another driver has taken the checkpoint over

    def hear(self, epoch: Epoch) -> None:
        """An epoch has begun; any thread may tell."""
        self._told = max(self._told, epoch)

    @property
    def seconds(self) -> float:
        """How long it is until the next look."""
        return 0.0 if self._told > self._begun else max(0.0, self._due - self._clock())

    def look(self) -> bool:
        """Read what is new; False if it means the same as what was there before."""
        manifest, intent = self.manifest, self.intent
        if self._told > self._begun:
            self._begun, self._wait, self._due = self._told, SOON, 0.0
        elif self._is_quiet:
            self._search()
        begun = self._begun
        if intent is None or intent.epoch != begun:
            intent = self._history.intent(begun) or intent
        if not self._has(begun):
            manifest = self._history.manifest(begun) or manifest
        if manifest is None or manifest.epoch < begun - 1:
            manifest = self._history.manifest(begun - 1) or manifest
        changed = manifest is not self.manifest or not place_alike(intent, self.intent)
        self.manifest, self.intent = manifest, intent
        self._wait = self._longest if self._has(begun) else min(2 * self._wait, self._longest)
        self._due = self._clock() + self._wait
        return changed

    def _has(self, epoch: int) -> bool:
        return self.manifest is not None and self.manifest.epoch >= epoch

    @property
    def _longest(self) -> float:
        placement = self.intent.placement if self.intent else None
        return QUIET * (len(placement.placement.executors) if placement else 1)

    @property
    def _is_quiet(self) -> bool:
        return self._has(self._begun) or self._wait >= self._longest

    def _search(self) -> None:
        """Ask the log for what nobody told."""
        self.is_over = self._history.newest_generation() > self._generation
        if self._history.intent(self._begun + 1) is not None or not self._has(self._begun):
            self._begun = max(self._history.intents(), default=self._begun)
            self.hear(self._begun)
            self._wait = SOON


def place_alike(one: Intent | None, other: Intent | None) -> bool:
    """Do two intents say the same of where workers, their bins and their replicas are?"""
    if one is None or other is None or one.placement != other.placement:
        return one is other
    return one.routings.keys() == other.routings.keys() and all(
        routing is other.routings[name] for name, routing in one.routings.items()
    )
