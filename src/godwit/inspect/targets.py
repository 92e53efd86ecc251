"""The target of a migration, planned from what the engine has measured."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from godwit.errors import ConfigError, InfeasibleError
from godwit.inspect.sizes import Sizes, counted_by_bin
from godwit.log.history import History
from godwit.model.routing import Routing, check_workers
from godwit.model.tree import PackedTree
from godwit.planner import hashed, intervals_of, scattered, single_step
from godwit.planner.markov import markov_step
from godwit.planner.projected import Projected

Planner = Literal["even", "scattered", "single-step", "markov", "hash"]

PLANNERS: Final[tuple[Planner, ...]] = get_args(Planner)
TAU: Final = 0.1  # if nobody says anything else, and it can be kept
AGEING: Final = 0.8  # what an epoch counts for, beside the one after it
EPOCHS: Final = 20  # that are looked at, if so many are retained


@dataclass(frozen=True, slots=True)
class Measured:
    """By bin, in the newest epochs: the records and the seconds of an epoch, of which newer ones
    count for more; and the rows and bytes of its stored state.

    Seconds are those that workers took to process an epoch, shared out among their bins by records.
    """

    records: Sizes
    seconds: Sizes
    rows: Sizes
    bytes: Sizes

    @classmethod
    def of(cls, history: History, operator: str, bins: int) -> "Measured":
        """As the newest published epochs tell."""
        loads, weights = np.zeros((2, bins)), 0.0  # records, seconds
        newest: Mapping[str, PackedTree] = {}
        for epoch in history.epochs()[-EPOCHS:]:
            manifest = history.manifest(epoch)
            if manifest is None or operator not in manifest.receipts:  # deleted meanwhile, or new
                continue
            newest = manifest.trees[operator]
            if epoch < 0:  # state was loaded
                continue
            if not all(receipt.tells_bins for receipt in manifest.receipts[operator]):
                continue  # bins may have been split since
            loads, weights = AGEING * loads, AGEING * weights + 1
            for receipt in manifest.receipts[operator]:
                if receipt.loads:
                    got = receipt.records_by_bin(bins)
                    each = receipt.process_seconds / max(got.sum(), 1.0)
                    loads += [got, got * each]
        trees = [tree.unpack() for tree in newest.values()]
        rows, bytes = counted_by_bin(history.files, trees, bins)
        records, seconds = loads / max(weights, 1.0)
        return cls(records, seconds, rows, bytes)

    @property
    def load(self) -> Sizes:
        """What is to be balanced: records; where none have come, state; else bins.

        Not seconds: a worker's are also those of its machine and of its neighbours there, which a
        bin would not take along.
        """
        for each in (self.records, self.bytes):
            if each.any():
                return each
        return np.ones(len(self.bytes))

    @classmethod
    def together(cls, several: "Sequence[Measured]") -> "Measured":
        """Those of operators whose bins move together, added up."""
        columns = ([getattr(one, name) for one in several] for name in cls.__slots__)
        return cls(*(np.sum(column, axis=0) for column in columns))


def targets(
    plan: Callable[[Routing, Measured], Routing],
    routings: Mapping[str, Routing],
    measured: Mapping[str, Measured],
) -> dict[str, Routing]:
    """By operator: what `plan` finds for those that have its routing, by their load together."""
    found: dict[Routing, Routing] = {}
    for routing in routings.values():
        if routing not in found:
            group = [measured[name] for name, one in routings.items() if one == routing]
            found[routing] = plan(routing, Measured.together(group))
    return {name: found[routing] for name, routing in routings.items()}


def target(
    planner: Planner,
    routing: Routing,
    measured: Measured,
    *,
    workers: int | None = None,
    drained: Collection[int] = (),
    tau: float | None = None,
    projected: Projected | None = None,
) -> Routing:
    """The routing that a planner finds best: over so many workers, or as many as there are.

    Workers above that number, and `drained` ones, end without a bin, and without a number so do
    those that have none now; but `single-step` and `markov` empty those whose removal moves least,
    so that workers above the number may stay. No worker gets more than
    `1 + tau` times the mean load, which `even` and `hash` do not look at; without a `tau` it is
    0.1, or if that cannot be kept, the smallest that the planner can keep. `markov` needs the
    `projected` costs of migrations to come, for as many bins; its tau is then theirs, or if that
    cannot be kept, the smallest with which one of their partitionings can.
    """
    number = routing.workers if workers is None else workers
    check_workers(number)
    for worker in drained:
        if not 0 <= worker < routing.workers:
            raise ConfigError(f"there is no worker {worker}, but 0 to {routing.workers - 1}")
    if drained and planner != "scattered":
        raise ConfigError(f"'{planner}' cannot keep a worker without bins; plan with 'scattered'")
    if tau is not None and planner in ("even", "hash"):
        raise ConfigError(f"'{planner}' does not look at the load: leave tau out")
    if projected is not None and planner != "markov":
        raise ConfigError(f"'{planner}' uses no projected costs; plan with 'markov'")
    if planner in ("single-step", "markov"):
        intervals_of(routing)  # refuses others, by the numbers that workers have there
    if workers is None and len(busy := np.unique(routing.owners)) < number:
        # Planned as if nobody else were there, since idle ones shall stay so.
        owners = np.searchsorted(busy, routing.owners).astype(np.int32)
        fewer = Routing(owners, len(busy))
        rest = [int(np.searchsorted(busy, worker)) for worker in drained if worker in busy]
        found = target(planner, fewer, measured, drained=rest, tau=tau, projected=projected)
        return Routing(busy[found.owners], number)
    if planner == "even":
        return routing.spread(number)
    if planner == "hash":
        after = hashed(routing.owners, number, measured.load, measured.bytes)
        return Routing(after.owners, number)
    if planner == "markov" and projected is None:
        raise ConfigError(
            "'markov' needs projected costs, which 'godwit project' computes; or plan with "
            "'single-step', which looks at one migration alone"
        )
    wanted = tau if tau is not None else projected.problem.tau if projected else TAU
    try:
        return _balanced(planner, routing, measured, number, drained, wanted, projected)
    except InfeasibleError as error:
        if tau is not None:
            raise
        least = error.tau * (1 + 1e-6) + 1e-9  # above what rounding may have cost
        return _balanced(planner, routing, measured, number, drained, least, projected)


def _balanced(
    planner: Planner,
    routing: Routing,
    measured: Measured,
    workers: int,
    drained: Collection[int],
    tau: float,
    projected: Projected | None,
) -> Routing:
    load, size = measured.load, measured.bytes
    if planner == "single-step":
        owners = single_step(intervals_of(routing), workers, load, size, tau).owners
    elif planner == "markov":
        assert projected is not None
        owners = markov_step(intervals_of(routing), workers, load, size, tau, projected).owners
    else:
        gone = {*drained, *range(workers, routing.workers)}
        left = workers - len([worker for worker in drained if worker < workers])
        if left < 1:
            raise ConfigError("no worker would be left")
        owners = scattered(routing.owners, left, load, size, tau, drained=gone).owners
    return Routing(owners, max(workers, int(owners.max()) + 1))
