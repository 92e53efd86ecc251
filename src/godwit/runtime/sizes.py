"""How much state the bins have, and how long it takes to move them: estimates."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from godwit.log.history import History
from godwit.model.routing import SEGMENTS, Routing
from godwit.protocol.migration import Migration, Phase
from godwit.state import bins as state_bins
from godwit.state.tree import Tree
from godwit.strategies import Batched, Fluid, Matched, Paced, Strategy
from godwit.strategies.steps import left

Sizes = npt.NDArray[np.float64]

SHORTEST = 0.001  # seconds: what takes less was not fetching


def rows_by_bin(trees: Iterable[Tree], bins: int) -> Sizes:
    """Stored rows, of which newer ones may hide older ones of the same key.

    Bins and segments are both ranges of the hash space; within a segment all bins are alike.
    """
    rows = np.zeros(SEGMENTS)
    for tree in trees:
        rows += [sum(run.rows for run in runs) for runs in tree.segments]
    if bins < SEGMENTS:
        summed: Sizes = rows.reshape(bins, -1).sum(axis=1)
        return summed
    return np.repeat(rows * SEGMENTS / bins, bins // SEGMENTS)


def bytes_by_bin(trees: Iterable[Tree], bins: int) -> Sizes:
    """The bytes of the files, shared out by rows."""
    trees = list(trees)
    size = sum(ref.bytes for tree in trees for ref in tree.files.values())
    rows = rows_by_bin(trees, bins)
    share: float = size / max(rows.sum(), 1.0)
    return rows * share


def counted_by_bin(root: Path, trees: Iterable[Tree], bins: int) -> tuple[Sizes, Sizes]:
    """Stored rows and their bytes, counted bin by bin in the files below `root`.

    A row has the bytes that those of its file have in the mean. Epochs pay nothing for this: who
    plans reads the files. If one was deleted meanwhile, bins of a segment are taken to be alike.
    """
    trees = list(trees)
    if bins <= SEGMENTS:  # which are counted in the trees
        return rows_by_bin(trees, bins), bytes_by_bin(trees, bins)
    rows, bytes = np.zeros(bins), np.zeros(bins)
    try:
        for tree in trees:
            for name, segments in tree.segments_of_files().items():
                found = state_bins.rows_by_bin(root / name, bins, segments)
                rows += found
                bytes += found * (tree.files[name].bytes / tree.files[name].rows)
    except FileNotFoundError:
        return rows_by_bin(trees, bins), bytes_by_bin(trees, bins)
    return rows, bytes


def seconds_left(
    migration: Migration, routing: Routing, pace: float | None, now: float
) -> float | None:
    """How long the rest of a migration takes if epochs follow each other at this pace.

    A paced one goes on as fast as it has so far: what destinations lack is not known here.
    """
    if isinstance(migration.strategy, Paced):
        arrived, rest = len(left(migration.origin, routing)), len(left(routing, migration.target))
        if migration.phase is Phase.RETURNING or not arrived:
            return None
        return (now - migration.accepted) * rest / arrived
    if pace is None:
        return None
    return pace * epochs_left(migration.strategy, routing, migration.goal)


def epochs_left(strategy: Strategy, routing: Routing, target: Routing) -> int:
    """How many epochs a strategy takes from one routing to the other, if it knows beforehand."""
    bins = left(routing, target)
    match strategy:
        case Fluid():
            return len(bins)
        case Batched(count):
            return -(-len(bins) // count)
        case Matched(gap):
            ends = (routing.owners[bins], target.owners[bins])
            return (gap + 1) * max(int(np.bincount(end).max(initial=0)) for end in ends)
    return min(len(bins), 1)


def fetch_rate(history: History, operator: str) -> float | None:
    """The bytes a second that a worker has fetched ahead of need; None if no retained epoch did."""
    fetched, seconds = 0, 0.0
    for epoch in history.epochs():
        if (manifest := history.manifest(epoch)) is None:  # deleted meanwhile
            continue
        for receipt in manifest.receipts.get(operator, ()):
            if receipt["fetched"] and receipt["seconds"].get("fetch", 0.0) >= SHORTEST:
                fetched += receipt["fetched"]
                seconds += receipt["seconds"]["fetch"]
    return fetched / seconds if seconds else None
