"""Does a job still have the executors that it was planned for?"""

import threading
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from pyspark import SparkContext

from godwit.model.ids import ExecutorId
from godwit.placement.slots import Placement
from godwit.spark.executors import live

PERIOD: Final = 0.1  # seconds


class LossWatch:
    """Cancels the jobs of this thread when an executor that a worker is placed on is lost.

    Spark would run the lost tasks again, on any executor. But the state of a worker is where its
    replica is, so the epoch is to be placed and run anew. Without a worker, an executor is missed
    only if a job fails: it may have had records that do not come out again as they were.
    """

    def __init__(self, context: SparkContext, placement: Placement | None) -> None:
        self._context = context
        self._needed = frozenset(placement.homes if placement else ())
        self._all = frozenset(placement.executors if placement else ())
        self._tag = f"godwit-{uuid.uuid4().hex}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="godwit-watch", daemon=True)
        self.lost: frozenset[ExecutorId] = frozenset()

    def __enter__(self) -> Self:
        if self._needed:
            self._all |= live(self._context)  # what one that has just joined keeps is lost with it
            self._context.addJobTag(self._tag)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._needed:
            self._over.set()
            self._thread.join()
            with suppress(Exception):  # Spark may have ended, as `error` then tells
                self._context.removeJobTag(self._tag)
                if error is not None:  # it may be the first that tells of a loss
                    self._note(self._all)

    def _look(self) -> None:
        with suppress(Exception):  # as above
            while not self._over.wait(PERIOD):
                self._note(self._needed)
                if self.lost:
                    self._context.cancelJobsWithTag(self._tag)

    def _note(self, executors: frozenset[ExecutorId]) -> None:
        self.lost |= executors - live(self._context)
