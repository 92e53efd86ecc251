"""How much state the bins have, and how long it takes to move them: estimates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import numpy as np
import numpy.typing as npt

from godwit.log.history import History
from godwit.migration.migration import MigrationPhase, MigrationState
from godwit.migration.strategies import Known, left, sought
from godwit.model.files import FileRef
from godwit.model.manifest import WorkerStatistics
from godwit.model.routing import SEGMENTS, Routing
from godwit.model.tree import Tree
from godwit.state import bin_rows as state_bins
from godwit.state.run import slices_of
from godwit.storage.store import Store

Sizes = npt.NDArray[np.float64]

SHORTEST = 0.001  # seconds: what takes less was not fetching


def rows_by_bin(trees: Iterable[Tree], bins: int) -> Sizes:
    """Row versions: newer ones may hide older ones of the same key."""
    return _by_bin(trees, bins, lambda ref: 1.0)


def bytes_by_bin(trees: Iterable[Tree], bins: int) -> Sizes:
    """Their bytes: a row has those that the rows of its file have in the mean."""
    return _by_bin(trees, bins, lambda ref: ref.bytes / ref.rows)


def _by_bin(trees: Iterable[Tree], bins: int, weight: Callable[[FileRef], float]) -> Sizes:
    """The weight of all rows, of which each has that of its file.

    Bins and segments are both ranges of the hash space; within a segment all bins are alike.
    """
    sums = np.zeros(SEGMENTS)
    for tree in trees:
        weights = {name: weight(ref) for name, ref in tree.files.items()}
        sums += [
            sum(run.rows * weights[run.file] for run in tree.runs(segment))
            for segment in range(SEGMENTS)
        ]
    if bins < SEGMENTS:
        summed: Sizes = sums.reshape(bins, -1).sum(axis=1)
        return summed
    return np.repeat(sums * SEGMENTS / bins, bins // SEGMENTS)


def counted_by_bin(files: Store, trees: Iterable[Tree], bins: int) -> tuple[Sizes, Sizes]:
    """Row versions and their bytes, counted bin by bin in the files.

    Epochs pay nothing for this: who plans reads the files. If one was deleted meanwhile,
    bins of a segment are taken to be alike.
    """
    trees = list(trees)
    if bins <= SEGMENTS:  # which are counted in the trees
        return rows_by_bin(trees, bins), bytes_by_bin(trees, bins)
    rows, bytes = np.zeros(bins), np.zeros(bins)
    try:
        for tree in trees:
            for name, segments in tree.segments_of_files().items():
                found = state_bins.rows_by_bin(files, name, bins, segments)
                rows += found
                bytes += found * (tree.files[name].bytes / tree.files[name].rows)
    except FileNotFoundError:
        return rows_by_bin(trees, bins), bytes_by_bin(trees, bins)
    return rows, bytes


def seconds_left(
    migration: MigrationState, routing: Routing, pace: float | None, now: float
) -> float | None:
    """How long the rest of a migration takes if it goes on as it has so far.

    What destinations lack is not known here, nor how fast bins come back.
    """
    arrived = len(left(migration.origin, routing))
    if migration.phase is MigrationPhase.RETURNING:
        arrived = 0
    elapsed = now - migration.accepted
    known = Known(routing, migration.goal, pace, arrived, elapsed)
    return migration.strategy.estimate(known).seconds


def fetch_rate(history: History, operator: str) -> float | None:
    """The bytes a second that a worker has fetched; None if no retained epoch did."""
    fetched, seconds = 0, 0.0
    for receipts in _receipts(history, operator):
        for receipt in receipts:
            if receipt.fetched and receipt.fetch_seconds >= SHORTEST:
                fetched += receipt.fetched
                seconds += receipt.fetch_seconds
    return fetched / seconds if seconds else None


def work_seconds(history: History, operator: str) -> float:
    """What the slowest worker needs in an epoch without fetching, as retained epochs tell."""
    work = [
        max(sum(parts.values()) - parts.get("fetch", 0.0) for parts in each)
        for receipts in _receipts(history, operator)
        if (each := [receipt.seconds for receipt in receipts])
    ]
    return median(work) if work else 0.0


def lacking(
    trees: Iterable[Tree], routing: Routing, target: Routing
) -> tuple[tuple[int, ...], ...]:
    """For each destination, the bytes of the files that it has to fetch."""
    trees = list(trees)
    has, will_have = slices_of(routing).tolist(), slices_of(target).tolist()
    lacks = []
    for worker, segments in sought(routing, target).items():
        known = _files(trees, enumerate(has[worker]) if worker < routing.workers else ()).keys()
        needs = _files(trees, ((segment, will_have[worker][segment]) for segment in segments))
        lacks.append(tuple(size for name, size in needs.items() if name not in known))
    return tuple(lacks)


def _files(trees: Iterable[Tree], parts: Iterable[tuple[int, int]]) -> dict[str, int]:
    """The bytes of each file of some segments, with slices of these."""
    return {
        run.file: tree.files[run.file].bytes
        for segment, slices in parts
        for tree in trees
        for run in tree.runs(segment, slices)
    }


def _receipts(history: History, operator: str) -> Iterator[Sequence[WorkerStatistics]]:
    """Those of each retained epoch."""
    for epoch in history.epochs():
        if (manifest := history.manifest(epoch)) is not None:  # or it was deleted meanwhile
            yield manifest.receipts.get(operator, ())
