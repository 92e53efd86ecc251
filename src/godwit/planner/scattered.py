"""Single bins to workers, with the least state moved: what a routing without intervals allows."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError, InfeasibleError
from godwit.model.text import plural
from godwit.planner.assignment import Floats, Interval, Ints, intervals_in
from godwit.planner.bin_assignment import (
    BinAssignment,
    Owners,
    check_owners,
    check_workers,
    measured,
)
from godwit.planner.inputs import ROUNDING, check_nodes, check_tau, check_weights
from godwit.planner.integer_program import TOLERANCE, solve
from godwit.planner.shedding import by_worker, least, returned, shed
from godwit.planner.single import single_step, sums

EXACT = 512  # bins times workers, up to which the best placement is searched for
PRICES = 8  # tried to keep to a number of moves


def scattered(
    owners: npt.ArrayLike,
    workers: int,
    load: npt.ArrayLike,
    size: npt.ArrayLike,
    tau: float,
    *,
    drained: Iterable[int] = (),
    capacity: Sequence[float] | None = None,
    most_moves: int | None = None,
) -> BinAssignment:
    """A placement of bins onto `workers` workers that moves little state and keeps the balance.

    `owners` has the worker of every bin. No worker gets more than `1 + tau` times its share of the
    load: an equal one, or in proportion to `capacity`, by worker. Those in `drained` end without a
    bin and do not count as `workers`; if more are left than wanted, it is chosen who ends without;
    if fewer, new ones follow on them. At most `most_moves` bins move.

    Up to 512 bins times workers it is the best placement, unless its search is given up; beyond, a
    good one. `bound` tells what no placement can do without, and `gap` how far that is. Without
    `drained`, `capacity` and `most_moves` it never costs more than `single_step`. Raises
    `InfeasibleError` if it finds no placement.

    >>> scattered([0, 0, 0, 1], 2, [4, 1, 2, 1], [9, 1, 1, 1], tau=0.0).owners.tolist()
    [0, 1, 1, 1]
    """
    loads, sizes = check_weights(load, size)
    before = check_owners(owners, len(loads))
    problem = _problem(
        before, loads, sizes, check_nodes(workers), check_tau(tau), drained, capacity
    )
    if most_moves is not None and most_moves < 0:
        raise ConfigError(
            f"at most {plural(most_moves, 'bin')} cannot move; give a number from 0 on"
        )
    bound = problem.bound()
    best = problem.cheapest(most_moves)
    if _unproven(best, bound) and len(before) * len(problem.candidates) <= EXACT:
        best, bound = _improved(problem, best, bound, most_moves)
    if _unproven(best, bound) and most_moves is None and capacity is None and not problem.drained:
        best = _not_above_intervals(problem, best)
    if best is None:
        raise problem.infeasible(most_moves)
    return replace(best, bound=min(bound, best.cost))


@dataclass(frozen=True, slots=True)
class _Problem:
    """What to place, and the limit of every worker; of the candidates, `workers` will work."""

    owners: Owners
    load: Floats
    size: Floats
    tau: float
    workers: int
    drained: frozenset[int]
    candidates: Ints
    share: Floats  # of the load, by worker

    @property
    def limit(self) -> Floats:
        return (1 + self.tau) * float(self.load.sum()) * self.share * (1 + ROUNDING / 2)

    def keeps(self, after: Owners) -> bool:
        """Is every worker within its limit, and do no more work than wanted?"""
        loads = np.bincount(after, self.load, len(self.share))
        used = np.unique(after)
        allowed = bool(np.isin(used, self.candidates).all()) and len(used) <= self.workers
        return allowed and bool((loads <= self.limit * (1 + ROUNDING / 2)).all())

    def placement(self, after: Owners) -> BinAssignment:
        return measured(self.owners, after, self.load, self.size)

    def settled(self, after: Owners) -> Owners:
        """The same or better: what can stay stays, even if it costs nothing to move."""
        working = np.zeros(len(self.share), np.bool_)
        working[after] = True
        return returned(self.owners, after, self.load, self.size, self.limit, working)

    def bound(self) -> float:
        """What no placement can do without: drained bins, and a cover of every overload."""
        covers, sizes = np.zeros(len(self.share)), np.zeros(len(self.share))
        whole = bool((self.size == np.floor(self.size)).all())
        limit = self.limit * (1 + ROUNDING / 2)
        for worker, bins in enumerate(by_worker(self.owners, len(self.share))):
            sizes[worker] = self.size[bins].sum()
            over = float(self.load[bins].sum() - limit[worker])
            covers[worker] = least(self.load[bins], self.size[bins], over)
            if whole:
                covers[worker] = math.ceil(covers[worker] * (1 - ROUNDING))
        return _at_least(covers, sizes, self.candidates, self.workers)

    def cheapest(self, most_moves: int | None) -> BinAssignment | None:
        """A good placement; with a price on every move, if it had too many of them else."""
        best = self._priced(0.0)
        if most_moves is None or (best and best.moves <= most_moves):
            return best
        unit = float(self.size.mean()) or 1.0
        low, high = -6.0, 6.0  # the price as a power of ten
        best = self._priced(unit * 10**high)
        if best is None or best.moves > most_moves:
            return None
        for _ in range(PRICES):
            middle = (low + high) / 2
            found = self._priced(unit * 10**middle)
            if found and found.moves <= most_moves:
                high, best = middle, min(best, found, key=attrgetter("cost"))
            else:
                low = middle
        return best

    def _priced(self, a_move: float) -> BinAssignment | None:
        """The cheapest found with this price on a move, on top of that of its state."""
        working = np.zeros(len(self.share), np.bool_)
        state = np.bincount(self.owners, self.size, len(self.share))[self.candidates]
        working[self.candidates[(-state).argsort(kind="stable")[: self.workers]]] = True
        # Heavy bins are cheap for their load. But one that has room nowhere pushes many others out.
        room = self.limit - np.bincount(self.owners, self.load, len(self.share))
        heavy = self.load > room[working].max()
        price = self.size + a_move
        prices = [price, np.where(heavy, price + price.sum(), price)] if heavy.any() else [price]
        found = [
            after
            for one in prices
            if (after := shed(self.owners, self.load, one, self.limit, working)) is not None
        ]
        found = [after for after in found if self.keeps(after)] or [self._evenly(working)]
        if not self.keeps(found[0]):
            return None
        return min(map(self.placement, found), key=attrgetter("cost"))

    def _evenly(self, working: npt.NDArray[np.bool_]) -> Owners:
        """Without regard to where bins are: the heaviest first, to who has least for its share."""
        after, loads = np.empty_like(self.owners), np.zeros(len(self.share))
        workers = np.flatnonzero(working)
        for bin in (-self.load).argsort(kind="stable").tolist():
            filled = (loads[workers] + self.load[bin]) / self.share[workers]
            worker = workers[filled.argmin()]
            after[bin] = worker
            loads[worker] += self.load[bin]
        return after

    def infeasible(self, most_moves: int | None) -> InfeasibleError:
        bin = int(self.load.argmax())
        working = np.zeros(len(self.share), np.bool_)
        working[self.candidates[: self.workers]] = True
        even = np.bincount(self._evenly(working), self.load, len(self.share))
        share = np.where(working, self.share, np.inf)
        tau = max(0.0, float((even / share).max() / (self.load.sum() or 1.0) - 1))
        capped = "" if most_moves is None else f" with at most {most_moves} moves"
        return InfeasibleError(
            f"found no placement of {plural(len(self.load), 'bin')} that keeps "
            f"{plural(self.workers, 'worker')} within tau = {self.tau:g}{capped}. "
            f"The heaviest bin, {bin}, has a load of {self.load[bin]:g}, of "
            f"{self.load.sum():g} in all. "
            f"{'Without a limit of moves, tau' if capped else 'Tau'} = "
            f"{math.ceil(tau * 1e6) / 1e6:g} can be kept",
            task=bin,
            load=float(self.load[bin]),
            tau=tau,
        )


def _problem(
    owners: Owners,
    load: Floats,
    size: Floats,
    workers: int,
    tau: float,
    drained: Iterable[int],
    capacity: Sequence[float] | None,
) -> _Problem:
    gone = check_workers("drained", drained)
    current = int(owners.max(initial=-1)) + 1
    candidates = [worker for worker in range(current) if worker not in gone]
    fresh = max([current, *(worker + 1 for worker in gone)])
    candidates += range(fresh, fresh + workers - len(candidates))
    share = np.zeros(max(fresh, *(worker + 1 for worker in candidates)))
    if capacity is None:
        share[candidates] = 1 / workers
    else:
        if len(candidates) > workers:
            raise ConfigError(
                f"there are {plural(len(candidates), 'worker')} of unequal capacity, and "
                f"{workers} are wanted: name those in `drained` that shall end without a bin"
            )
        given = np.asarray(capacity, np.float64)
        if given.ndim != 1 or len(given) <= candidates[-1]:
            raise ConfigError(
                f"capacity must have a number for each of {plural(candidates[-1] + 1, 'worker')}"
            )
        wrong = [one for one in candidates if not (np.isfinite(given[one]) and given[one] > 0)]
        if wrong:
            raise ConfigError(f"worker {wrong[0]} has the capacity {given[wrong[0]]}, not above 0")
        share[candidates] = given[candidates] / given[candidates].sum()
    return _Problem(owners, load, size, tau, workers, gone, np.array(candidates), share)


def _unproven(best: BinAssignment | None, bound: float) -> bool:
    return best is None or best.cost > bound * (1 + ROUNDING)


def _improved(
    problem: _Problem, best: BinAssignment | None, bound: float, most_moves: int | None
) -> tuple[BinAssignment | None, float]:
    """The best placement of few bins, and the bound that its search has proven."""
    for margin in (0.0, 2 * TOLERANCE):
        found = solve(
            problem.owners,
            problem.load,
            problem.size,
            problem.limit * (1 - margin),
            problem.candidates,
            problem.workers,
            most_moves,
        )
        if margin == 0.0 and not found.infeasible:
            bound = max(bound, found.bound)
        if found.owners is None:
            break
        if problem.keeps(found.owners):
            better = problem.placement(problem.settled(found.owners))
            return (better if best is None or better.cost < best.cost else best), bound
    return best, bound


def _not_above_intervals(problem: _Problem, best: BinAssignment | None) -> BinAssignment | None:
    """`best`, or what `single_step` finds, if that is cheaper."""
    try:
        intervals = intervals_in(problem.owners, int(problem.owners.max()) + 1)
        if best and best.cost <= _interval_bound(problem, intervals):
            return best
        found = single_step(intervals, problem.workers, problem.load, problem.size, problem.tau)
    except (ConfigError, InfeasibleError):  # no intervals now, or none within the limit
        return best
    return best if best and best.cost <= found.cost else problem.placement(found.owners)


def _interval_bound(problem: _Problem, intervals: Sequence[Interval]) -> float:
    """What intervals cannot do without: a node keeps at most one interval within the limit."""
    loads, sizes = sums(problem.load), sums(problem.size)
    low = loads.searchsorted(loads - problem.limit.max() * (1 + ROUNDING))
    lost, all_of = np.zeros(len(problem.share)), np.zeros(len(problem.share))
    for worker, (start, stop) in enumerate(intervals):
        ends = np.arange(start, stop + 1)
        kept = (sizes[ends] - sizes[np.maximum(low[ends], start)]).max()
        all_of[worker] = sizes[stop] - sizes[start]
        lost[worker] = all_of[worker] - kept
    return _at_least(lost, all_of, problem.candidates, problem.workers)


def _at_least(some: Floats, all_of: Floats, candidates: Ints, workers: int) -> float:
    """The least cost, if `workers` of the candidates lose `some` state each, and others all."""
    more = np.sort(all_of[candidates] - some[candidates])[: max(0, len(candidates) - workers)]
    others = np.delete(all_of, candidates)
    return float(some[candidates].sum() + more.sum() + others.sum())
