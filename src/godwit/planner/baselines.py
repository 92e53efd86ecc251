"""What others do, to compare with: none of them weighs what it moves."""

import numpy as np
import numpy.typing as npt

from godwit.planner.assignment import Floats
from godwit.planner.bin_assignment import BinAssignment, Owners, check_owners, measured
from godwit.planner.inputs import ROUNDING, check_nodes, check_tau, check_weights
from godwit.planner.shedding import by_worker


def hashed(
    owners: npt.ArrayLike,
    workers: int,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    *,
    seed: int = 0,
) -> BinAssignment:
    """Equally many bins a worker, with as few moves as that takes, of bins chosen at random.

    This is what consistent hashing aims at (Ding et al., Sections 2 and 6). Workers from number
    `workers` on end without a bin.
    """
    before, loads, sizes, workers = _checked(owners, workers, load, size)
    rng = np.random.default_rng(seed)
    counts = np.bincount(before, minlength=workers)
    quotas = np.zeros(len(counts), np.int64)
    quotas[:workers], more = divmod(len(before), workers)
    by_count = np.lexsort((rng.random(workers), -counts[:workers]))
    quotas[by_count[:more]] += 1  # those who have most may keep one more, which saves moves
    leave = [
        rng.permutation(bins)[quotas[worker] :]
        for worker, bins in enumerate(by_worker(before, len(counts)))
    ]
    after = before.copy()
    missing = np.repeat(np.arange(len(quotas)), np.maximum(quotas - counts, 0))
    after[rng.permutation(np.concatenate(leave))] = missing
    return measured(before, after, loads, sizes)


def hashed_cost(
    owners: npt.ArrayLike,
    workers: int,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    *,
    seeds: int = 100,
) -> float:
    """The mean cost of `hashed`, over so many seeds."""
    return float(
        np.mean([hashed(owners, workers, load, size, seed=seed).cost for seed in range(seeds)])
    )


def even(
    owners: npt.ArrayLike, workers: int, load: npt.ArrayLike, size: npt.ArrayLike
) -> BinAssignment:
    """Equally many consecutive bins a worker, in the order of the workers: Storm's default.

    >>> even([0, 0, 0, 0, 1, 1], 3, [1] * 6, [1] * 6).owners.tolist()
    [0, 0, 1, 1, 2, 2]
    """
    before, loads, sizes, workers = _checked(owners, workers, load, size)
    after = (np.arange(len(before)) * workers // max(1, len(before))).astype(np.int32)
    return measured(before, after, loads, sizes)


def hot_bins(
    owners: npt.ArrayLike,
    workers: int,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    tau: float,
) -> BinAssignment:
    """The hottest bin that helps, from the most to the least loaded worker, until all are within.

    Or until none helps: the limit may not be kept. Workers from number `workers` on end without a
    bin: theirs go first, the hottest first, each to the least loaded worker.

    >>> hot_bins([0, 0, 0, 1], 2, [4, 1, 2, 1], [9, 1, 1, 1], tau=0.2).owners.tolist()
    [1, 0, 0, 0]
    """
    before, loads, sizes, workers = _checked(owners, workers, load, size)
    limit = (1 + check_tau(tau)) * float(loads.sum()) / workers
    after = before.copy()
    gone = np.flatnonzero(before >= workers)
    has = np.bincount(before[before < workers], loads[before < workers], workers)
    for bin in gone[(-loads[gone]).argsort(kind="stable")].tolist():
        after[bin] = has.argmin()
        has[after[bin]] += loads[bin]
    while has.max() > limit:
        source, target = int(has.argmax()), int(has.argmin())
        helps = (has[source] - has[target]) * (1 - ROUNDING)
        bins = np.flatnonzero((after == source) & (loads > 0) & (loads < helps))
        if not len(bins):
            break
        bin = bins[loads[bins].argmax()]
        after[bin] = target
        has[source] -= loads[bin]
        has[target] += loads[bin]
    return measured(before, after, loads, sizes)


def _checked(
    owners: npt.ArrayLike, workers: int, load: npt.ArrayLike, size: npt.ArrayLike
) -> tuple[Owners, Floats, Floats, int]:
    loads, sizes = check_weights(load, size)
    return check_owners(owners, len(loads)), loads, sizes, check_nodes(workers)
