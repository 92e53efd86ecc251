"""A query whose intents say where its workers are and where replicas are to be."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from godwit.driver.driver import Driver
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.placement.placement_state import PlacementRecord
from godwit.placement.slots import Held, Placement
from godwit.state.cache import SUFFIX, CacheSpec, FileCache
from godwit.worker.keeper import KeeperSpec
from godwit.worker.neighbours import Neighbours
from godwit.worker.peer_key import PeerKey
from godwit.worker.replicas import Share
from tests.support.operator_simulation import OperatorSimulation
from tests.support.simulated import COUNTS, WORDS

PLENTY = 1 << 30


class Placed(OperatorSimulation):
    """The words' counts, by workers on executors, with replicas on others."""

    def __init__(
        self,
        checkpoint: Path,
        workers: Sequence[str],
        replicas: Sequence[Sequence[str]],
        **options: Any,
    ) -> None:
        self.place(workers, replicas)
        options = {"workers": len(workers), "bins": 16, **options}
        super().__init__(checkpoint, COUNTS, WORDS, **options)

    def place(self, workers: Sequence[str], replicas: Sequence[Sequence[str]]) -> None:
        """From the next epoch on."""
        homes = [*map(ExecutorId, workers)]
        copies = [[*map(ExecutorId, group)] for group in replicas]
        executors = sorted({*homes, *(one for group in copies for one in group)})
        self.placement = PlacementRecord(Placement.of(0, executors, homes, copies))

    @property
    def generation(self) -> int:
        return self.driver.journal.generation

    @property
    def home(self) -> Path:
        return self._checkpoint / "godwit"

    def spec(
        self, executor: str, limit: int = PLENTY, key: PeerKey | None = None, **addresses: str
    ) -> KeeperSpec:
        """As tasks of the newest epoch that has begun have it."""
        cache = CacheSpec(f"executor-{executor}", limit, str(self._checkpoint))
        known = {ExecutorId(name.lstrip("_")): where for name, where in addresses.items()}
        near = Neighbours.of(self.begun, self.placement.placement, key, known)
        store, generation = self.driver.checkpoint, self.generation
        return KeeperSpec(store, generation, cache, ExecutorId(executor), near)

    @property
    def begun(self) -> Epoch:
        """The newest epoch that has begun."""
        return max(History(self._checkpoint).intents(), default=Epoch(0))

    def files(self, worker: int, epoch: int | None = None) -> dict[str, FileRef]:
        """What a worker needs of an epoch, or of the newest, by the newest intent."""
        return dict(self.share(worker, epoch).files)

    def share(self, worker: int, epoch: int | None = None) -> Share:
        history = History(self._checkpoint)
        manifest = history.manifest(self.committed if epoch is None else epoch)
        intent = history.intent(history.intents()[-1])
        assert manifest is not None
        assert intent is not None
        return Share.of(WorkerId(worker), intent, manifest)

    def _open(self, workers: int | None, bins: int | None, drop: Collection[str] = ()) -> Driver:
        driver = super()._open(workers, bins, drop)
        begin = driver.journal.begin

        def placed(intent: Intent) -> Intent:
            return begin(replace(intent, placement=self.placement))

        driver.journal.begin = placed  # type: ignore[method-assign]
        return driver


def held(epoch: int | None, lacking: int = 0) -> Held:
    return Held(None if epoch is None else Epoch(epoch), lacking)


def cached(spec: KeeperSpec) -> set[str]:
    """The names of the local copies in the cache of an executor."""
    return {path.name for path in spec.cache.path.glob(f"*{SUFFIX}")}


def copies(spec: KeeperSpec, *files: dict[str, FileRef]) -> set[str]:
    """What local copies of these files are called."""
    cache = FileCache(History(spec.checkpoint).files, spec.cache.path, spec.cache.limit)
    return {Path(cache._local(ref)).name for group in files for ref in group.values()}
