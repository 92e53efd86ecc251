"""A second source without data, so that an idle stream runs epochs while work waits."""

import threading
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from godwit.runtime.driver import Driver

PATIENCE: Final = 1.0  # seconds
LONG: Final = 10.0


def with_ticks(df: DataFrame, directory: Path) -> DataFrame:
    """`df`, whose query also runs an epoch without records when a file appears in `directory`.

    The ticks are a file stream of Spark's own, whose rows are filtered away while Spark plans: it
    needs no process, reads nothing, and deletes the files that it has seen. Under `availableNow` a
    tick that comes after the start is left for the next one.
    """
    ticks = (
        df.sparkSession.readStream.format("text")
        .option("cleanSource", "delete")
        .load(f"file://{directory}")  # not as a URI: Spark would take an escaped space literally
        .where(sf.lit(False))
        .select(*[sf.lit(None).cast(f.dataType).alias(f.name) for f in df.schema])
    )
    return df.union(ticks)


class Ticker:
    """Asks for an epoch while something waits for one.

    After an epoch with records it waits a while, since a busy stream runs the next one by itself,
    after `interval` seconds: Spark's log of the files that it has seen never forgets one. With long
    intervals there are few.
    """

    def __init__(self, driver: Driver, interval: float) -> None:
        self._driver = driver
        self._patience = interval + PATIENCE if interval < LONG else 0.0
        self._timer: threading.Timer | None = None

    def hold(self) -> None:
        """An epoch begins, or none will any more."""
        if self._timer is not None:
            self._timer.cancel()

    def go_on(self, records: int) -> None:
        """An epoch with so many records has ended."""
        if not self._driver.wants_epoch:
            return
        if not records or not self._patience:
            self._driver.tick()
            return
        self._timer = threading.Timer(self._patience, self._driver.tick)
        self._timer.daemon = True
        self._timer.start()
