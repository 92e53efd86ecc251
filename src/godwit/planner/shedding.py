"""A good placement for many bins, fast: overloaded workers shed bins, which find other workers.

A worker above its limit sheds what costs least for its load: a knapsack cover, whose fractional
form bounds the cost of any placement from below. Heavy bins are placed first, each where there is
most room, and may push lighter ones out. At last a bin that fits at home stays there.
"""

import heapq

import numpy as np
import numpy.typing as npt

from godwit.planner.assignment import Floats, Ints
from godwit.planner.bin_assignment import Owners


def shed(
    owners: Owners, load: Floats, price: Floats, limit: Floats, working: npt.NDArray[np.bool_]
) -> Owners | None:
    """A placement within the limits that moves bins of little price, or None if it finds none."""
    leave = [
        bins if not working[worker] else bins[cover(load[bins], price[bins], over)]
        for worker, bins in enumerate(by_worker(owners, len(limit)))
        if (over := float(load[bins].sum() - limit[worker])) > 0 or not working[worker]
    ]
    after = owners.copy()
    after[np.concatenate([np.zeros(0, np.int64), *leave])] = -1
    if not _place(owners, after, load, price, _room(after, load, limit, working)):
        return None
    return returned(owners, after, load, price, limit, working)


def returned(
    owners: Owners,
    after: Owners,
    load: Floats,
    price: Floats,
    limit: Floats,
    working: npt.NDArray[np.bool_],
) -> Owners:
    """The placement `after`, but bins stay that fit where they are, the dear ones first."""
    after, room = after.copy(), _room(after, load, limit, working)
    moved = np.flatnonzero(owners != after)
    for bin in moved[price[moved].argsort(kind="stable")[::-1]].tolist():
        home, weight = owners[bin], load[bin]
        if room[home] >= weight:
            room[after[bin]] += weight
            room[home] -= weight
            after[bin] = home
    return after


def by_worker(owners: Owners, workers: int) -> list[Ints]:
    """The bins of every worker."""
    counts = np.bincount(owners, minlength=workers)
    return np.split(owners.argsort(kind="stable"), np.cumsum(counts)[:-1])


def cover(load: Floats, price: Floats, needed: float) -> Ints:
    """Few cheap bins with a load of at least `needed` together; all, if they have less."""
    order = _by_worth(load, price)
    cheap = load[order].cumsum()
    count = int(cheap.searchsorted(needed))
    if count >= len(order):
        return order
    # The last one need not be the next in the order: any does that is heavy enough.
    rest = order[count:]
    enough = rest[load[rest] >= needed - (cheap[count - 1] if count else 0.0)]
    last = enough[price[enough].argmin()] if len(enough) else order[count]
    chosen = np.append(order[:count], last)
    spare = float(load[chosen].sum()) - needed
    dropped = set()
    for bin in chosen[price[chosen].argsort()[::-1]].tolist():
        if load[bin] <= spare:
            spare -= load[bin]
            dropped.add(bin)
    return chosen[[bin not in dropped for bin in chosen.tolist()]] if dropped else chosen


def least(load: Floats, size: Floats, needed: float) -> float:
    """No bins with a load of `needed` together have less state: their fractional cover."""
    if needed <= 0:
        return 0.0
    order = _by_worth(load, size)
    loads, sizes = load[order].cumsum(), size[order].cumsum()
    count = int(loads.searchsorted(needed))
    if count >= len(order):
        return float(sizes[-1]) if len(order) else 0.0
    missing = needed - (loads[count - 1] if count else 0.0)
    fraction = float(missing / load[order[count]] * size[order[count]])
    return fraction + (float(sizes[count - 1]) if count else 0.0)


def _by_worth(load: Floats, price: Floats) -> Ints:
    """The bins that have any load, by price for load; of equal ones the heavy first."""
    bins = np.flatnonzero(load > 0)
    return bins[np.lexsort((-load[bins], price[bins] / load[bins]))]


def _place(owners: Owners, after: Owners, load: Floats, price: Floats, room: Floats) -> bool:
    """Give every bin that nobody has to the worker with most room; False if one fits nowhere."""
    queue = [(-load[bin], bin) for bin in np.flatnonzero(after < 0).tolist()]
    heapq.heapify(queue)
    roomy = [(-room[worker], worker) for worker in np.flatnonzero(room >= 0).tolist()]
    heapq.heapify(roomy)
    while queue:
        bin = heapq.heappop(queue)[1]
        worker = roomy[0][1]
        if room[worker] >= load[bin]:
            room[worker] -= load[bin]
            heapq.heapreplace(roomy, (-room[worker], worker))
        elif found := _push_out(owners, after, load, price, room, load[bin]):
            worker, pushed = found
            after[pushed] = -1
            for other in pushed.tolist():
                heapq.heappush(queue, (-load[other], other))
            room[worker] += load[pushed].sum() - load[bin]
            roomy = [(-room[worker], worker) for _, worker in roomy]
            heapq.heapify(roomy)
        else:
            return False
        after[bin] = worker
    return True


def _push_out(
    owners: Owners, after: Owners, load: Floats, price: Floats, room: Floats, weight: float
) -> tuple[int, Ints] | None:
    """A worker, and lighter bins of it in whose place a bin of this weight fits."""
    for worker in (-room).argsort(kind="stable").tolist():
        if room[worker] < 0:
            return None
        lighter = np.flatnonzero((after == worker) & (load < weight))
        if load[lighter].sum() >= weight - room[worker]:
            # What is not at home moves anyway.
            costs = np.where(owners[lighter] == worker, price[lighter], 0.0)
            return worker, lighter[cover(load[lighter], costs, weight - room[worker])]
    return None


def _room(after: Owners, load: Floats, limit: Floats, working: npt.NDArray[np.bool_]) -> Floats:
    """What every worker can still take; below 0 for those that do not work."""
    placed = after >= 0
    room = limit - np.bincount(after[placed], load[placed], len(limit))
    return np.where(working, room.clip(0), -1.0)
