"""A second source without data, so that an idle stream runs epochs while work waits."""

import threading
from contextlib import suppress
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from godwit.driver.demand import Demand
from godwit.driver.placements import Placements
from godwit.spark.pinning import Pinning

IDLE_SECONDS: Final = 1.0
LONG: Final = 10.0


def with_ticks(df: DataFrame, directory: str) -> DataFrame:
    """`df`, whose query also runs an epoch without records when a file appears in `directory`.

    The ticks are a file stream of Spark's own, whose rows are filtered away while Spark plans: it
    needs no process and reads nothing. Under `availableNow` a tick that comes after the start is
    left for the next one. The directory is named by its URL.
    """
    ticks = (
        df.sparkSession.readStream.format("text")
        .load(directory)
        .where(sf.lit(False))
        .select(*[sf.lit(None).cast(f.dataType).alias(f.name) for f in df.schema])
    )
    return df.union(ticks)


class Ticker:
    """Asks for an epoch while something waits for one.

    After an epoch with records it waits a while, since a busy stream runs the next one by itself,
    after `interval` seconds: Spark's log of the files that it has seen never forgets one. With long
    intervals there are few. On an idle stream it looks from time to time whether executors came or
    went, whether a handover could go on that nobody asked for, and whether a source has been silent
    for so long that timers are due without it.
    """

    def __init__(
        self,
        demand: Demand,
        placements: Placements,
        pinning: Pinning,
        interval: float,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._demand = demand
        self._placements = placements
        self._pinning = pinning
        self._idle_seconds = idle_seconds
        self._patience = interval + idle_seconds if interval < LONG else 0.0
        self._over: threading.Event | None = None

    def hold(self) -> None:
        """An epoch begins, or none will any more."""
        if self._over is not None:
            self._over.set()

    def go_on(self, records: int) -> None:
        """An epoch with so many records has ended."""
        wanted = self._demand.wants_epoch
        if wanted and not (records and self._patience):
            self._demand.tick()
        elif wanted or self._pinning.is_possible or self._demand.awaits_silence:
            self._over = over = threading.Event()
            waiting = threading.Thread(target=self._wait, args=[over], name="godwit-tick")
            waiting.daemon = True
            waiting.start()

    def _wait(self, over: threading.Event) -> None:
        """Until the next epoch begins, look whether one should be asked for."""
        while not over.wait(self._patience or self._idle_seconds):
            with suppress(Exception):  # Spark may be ending, or a file be deleted meanwhile
                if self._has_news:
                    self._demand.tick()
                    return

    @property
    def _has_news(self) -> bool:
        placement = self._placements.placement
        demand = self._demand
        return demand.wants_epoch or self._pinning.have_changed(placement) or demand.can_settle
