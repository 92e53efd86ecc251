"""Deleting files that no retained manifest names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from godwit.log.journal import Journal
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest, output_files, state_files
from godwit.storage.store import Store

SWEEP_EPOCHS = 100

_EPOCH = re.compile(r"e(-?\d+)-")


class Garbage:
    """Deletes a file only when no manifest within the retention names it.

    Manifests go before the files that only they name, so a retained manifest is always whole.
    """

    def __init__(self, journal: Journal, retention: int) -> None:
        self._journal = journal
        self._retention = retention
        self._live: set[str] = set()
        self._doomed: dict[int, set[str]] = defaultdict(set)  # by the newest epoch that names them
        epochs = journal.epochs()
        for epoch in epochs:
            if manifest := journal.manifest(epoch):
                self._follow(manifest)
        if epochs:
            self._retire(epochs[-1])
            self._sweep(epochs[-1])

    def collect(self, manifest: Manifest) -> None:
        """Note what the newest manifest supersedes, and delete what has left the retention."""
        self._follow(manifest)
        self._retire(manifest.epoch)
        if manifest.epoch % SWEEP_EPOCHS == 0:
            self._sweep(manifest.epoch)

    def _sweep(self, newest: int) -> None:
        """Delete what attempts that did not win have left behind in published epochs."""
        named = self._live.union(*self._doomed.values())
        written = _files_until(self._journal.files, newest)
        self._delete(name for name in written if name not in named)

    def _retire(self, newest: int) -> None:
        oldest = newest - self._retention + 1
        self._journal.prune(Epoch(oldest))
        for epoch in [epoch for epoch in self._doomed if epoch < oldest]:
            self._delete(self._doomed.pop(epoch))

    def _follow(self, manifest: Manifest) -> None:
        live = {ref.name for ref in state_files(manifest)}
        self._doomed[manifest.epoch - 1] |= self._live - live
        self._doomed[manifest.epoch] |= {ref.name for ref in output_files(manifest)}
        self._live = live

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._journal.delete(name)


def _files_until(files: Store, epoch: int) -> Iterator[str]:
    """State and output files written for epochs up to `epoch`, and drafts of dead tasks."""
    for directory in ("state", "outputs"):
        for name in files.list_files(directory):
            named = _EPOCH.match(name.rpartition("/")[2])
            if named and int(named[1]) <= epoch:
                yield name
        yield from files.drafts(directory)
