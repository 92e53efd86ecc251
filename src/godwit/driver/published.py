"""The newest published epoch, as far as the next one goes on from it."""

from collections.abc import Mapping
from typing import Final

from godwit.driver.event_time import EventTime
from godwit.driver.merges import Trees
from godwit.driver.monitor import Monitor
from godwit.inspect.sizes import Sizes, bytes_by_bin
from godwit.log.journal import Journal
from godwit.model.graph import Graph
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest
from godwit.model.tree import Tree
from godwit.operators.base import Operator

INITIAL: Final = Epoch(-1)  # the epoch that loads a state given at the start


class Published:
    """The manifest of the newest published epoch, the trees of its state and its event time.

    The three are always of one epoch. The query's thread alone changes them.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        graph: Graph,
        journal: Journal,
        monitor: Monitor,
    ) -> None:
        self._operators = operators
        self._graph = graph
        self._journal = journal
        self._monitor = monitor
        self.manifest: Manifest | None
        self._read(journal.last())

    @property
    def epoch(self) -> Epoch | None:
        """None before the first."""
        return self.manifest.epoch if self.manifest else None

    def has(self, epoch: int) -> bool:
        """Is an epoch published? Before the first epoch there is nothing to publish."""
        return epoch <= INITIAL or (self.manifest is not None and self.manifest.epoch >= epoch)

    def wait(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until `epoch` is published; False if the query ends or `timeout` passes before."""
        return self._monitor.wait_for(lambda: self.has(epoch), timeout)

    def sizes(self, operator: str, bins: int) -> Sizes:
        """The bytes of state of each of `bins` bins, estimated."""
        with self._monitor:
            trees = list(self.trees[operator].values())
        return bytes_by_bin(trees, bins)

    def become(self, manifest: Manifest, trees: Trees, time: EventTime) -> None:
        """An epoch is published, with these trees; unless it was another driver that published it:
        then its manifest says what has happened."""
        with self._monitor:
            if manifest.generation == self._journal.generation:
                self.manifest, self.trees, self.time = manifest, trees, time
            else:
                self._read(manifest)

    def read_again(self) -> Manifest:
        """The newest manifest, to which operators were added."""
        with self._monitor:
            self._read(self._journal.last())
        assert self.manifest is not None
        return self.manifest

    def _read(self, manifest: Manifest | None) -> None:
        intent = self._journal.intent(manifest.epoch) if manifest else None
        self.manifest = manifest
        self.trees = _unpacked(self._operators, manifest)
        self.time = EventTime.of(self._operators, self._graph, manifest, intent)


def _unpacked(operators: Mapping[str, Operator], manifest: Manifest | None) -> Trees:
    stored = manifest.trees if manifest else {}
    return {
        name: {
            spec.name: stored[name][spec.name].unpack()
            if spec.name in stored.get(name, {})
            else Tree.empty()
            for spec in operator.tables
        }
        for name, operator in operators.items()
    }
