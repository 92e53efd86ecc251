"""What the last epochs of an operator tell about its next one."""

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

from godwit.driver.repetition import Repetition
from godwit.migration.strategies import NOTHING, Ready, Strategy
from godwit.model.receipt import Receipt

_EPOCHS: Final = 5  # that tell what an epoch's work takes


class RecentEpochs:
    """The receipts of one operator's last epochs in this process, summed up.

    It advises and decides nothing: an epoch is right whatever it says. Only the query's thread
    uses it.
    """

    def __init__(self, table: str) -> None:
        self._table = table  # that of aggregates, which has a row a key
        self._seconds: deque[float] = deque(maxlen=_EPOCHS)  # of the slowest worker
        self._repetition = Repetition()
        self.ready: Ready = None  # the segments that workers have fetched ahead

    def add(self, receipts: Sequence[Receipt]) -> None:
        """An epoch is published, with one receipt a worker."""
        self.ready = {receipt.worker: receipt.ready for receipt in receipts}
        self._seconds.append(max(receipt.work_seconds for receipt in receipts))
        self._repetition.add(
            sum(receipt.records for receipt in receipts),
            sum(receipt.changed(self._table) for receipt in receipts),
        )

    def forget_ready(self) -> None:
        """Other executors are there: workers have to say again what they have."""
        if self.ready is not None:
            self.ready = NOTHING

    def fetch_budget(self, strategy: Strategy) -> float | None:
        """The seconds for which destinations fetch ahead in the next epoch, if they do."""
        return strategy.fetch_seconds(median(self._seconds) if self._seconds else 0.0)

    @property
    def prefold_pays(self) -> bool:
        """Do keys repeat so often that folding them before the shuffle pays?"""
        return self._repetition.are_many
