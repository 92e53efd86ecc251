"""In which order to move: phases in which no worker sends to two others, or receives from two.

This is the open shop problem, as in Roediger et al., "Locality-Sensitive Operators for Parallel
Main-Memory Database Clusters" (ICDE 2014): what every worker sends to every other is a matrix,
filled up with idle time until all its rows and columns are equally long. Such a matrix is a sum of
matchings (Birkhoff), each of which is a phase; long ones come first. If state could
be cut anywhere, the busiest worker would never wait; bins are not cut, so it may wait for one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from godwit.errors import ConfigError
from godwit.model.routing import Move, Update, moves_of
from godwit.planner.assignment import Floats, Ints
from godwit.planner.bin_assignment import Owners, check_owners
from godwit.planner.inputs import ROUNDING, check_weights

SMALLEST = 1e-7  # of what the busiest worker does: less than this no bin takes
NOTHING = 1e-12  # of the longest transfer: what is left by rounding


@dataclass(frozen=True, slots=True)
class Transfers:
    """The moves of a migration in phases, whose order a query may follow (`updates`).

    In a phase a worker sends to at most one other, and receives from at most one. `seconds` is
    predicted: a worker goes on to its next phase as soon as the one that it sends to or receives
    from there has come to it, too. In less than `bound` the busiest worker cannot do its part.
    """

    phases: tuple[tuple[Move, ...], ...]
    seconds: float
    bound: float

    @property
    def bins(self) -> Ints:
        """The bins in the order of their phases."""
        return np.array([move.bin for phase in self.phases for move in phase], np.int64)

    def updates(self, epoch: int) -> list[Update]:
        """For `query.schedule`: a phase an epoch, the first one in `epoch`."""
        return [
            Update(later, move.bin, move.target)
            for later, phase in enumerate(self.phases, epoch)
            for move in phase
        ]


def transfers(
    before: npt.ArrayLike, after: npt.ArrayLike, size: npt.ArrayLike, bandwidth: float
) -> Transfers:
    """The moves that lead from the owners `before` to those `after`, in phases.

    `bandwidth` is what a worker can send in a second, and receive at the same time.

    >>> found = transfers([0, 0, 1, 1], [1, 2, 2, 0], [1, 1, 1, 1], bandwidth=1.0)
    >>> [[(move.bin, move.source, move.target) for move in phase] for phase in found.phases]
    [[(1, 0, 2), (3, 1, 0)], [(0, 0, 1), (2, 1, 2)]]
    >>> found.seconds, found.bound
    (2.0, 2.0)
    >>> [(update.epoch, update.bin, update.worker) for update in found.updates(epoch=7)]
    [(7, 1, 2), (7, 3, 0), (8, 0, 1), (8, 2, 2)]
    """
    sizes, _ = check_weights(size, size)
    old, new = check_owners(before, len(sizes)), check_owners(after, len(sizes))
    if not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ConfigError(f"bandwidth must be a finite number above 0, not {bandwidth}")
    workers = int(max(old.max(initial=-1), new.max(initial=-1))) + 1
    moved = np.flatnonzero(old != new)
    pairs = old[moved].astype(np.int64) * workers + new[moved]
    order = np.lexsort((-sizes[moved], pairs))  # of the bins of a pair the large first
    bins, pairs = moved[order], pairs[order]
    # A bin without state takes its turn like others, for next to no time.
    weight = np.maximum(sizes[bins], SMALLEST * (_busiest(old, new, sizes, moved) or 1.0))
    phase = _phase_of_bins(weight, pairs, workers)
    in_order = phase.argsort(kind="stable")
    phases = np.split(bins[in_order], np.flatnonzero(np.diff(phase[in_order])) + 1)
    phases = phases if len(bins) else []
    return Transfers(
        tuple(tuple(moves_of(np.sort(some), old, new)) for some in phases),
        seconds=_last_end(phases, old, new, sizes, workers) / bandwidth,
        bound=_busiest(old, new, sizes, moved) / bandwidth,
    )


def _busiest(old: Owners, new: Owners, size: Floats, bins: Ints) -> float:
    """What the worker that sends or receives most of these bins sends or receives."""
    sent, received = np.bincount(old[bins], size[bins]), np.bincount(new[bins], size[bins])
    return float(max(sent.max(initial=0.0), received.max(initial=0.0)))


def _last_end(phases: list[Ints], old: Owners, new: Owners, size: Floats, workers: int) -> float:
    """When the last transfer ends, at a bandwidth of 1."""
    sent, received = np.zeros(workers), np.zeros(workers)
    for bins in phases:
        sources, first = np.unique(old[bins], return_index=True)
        targets = new[bins[first]]  # a source has one target in a phase
        amount = np.bincount(old[bins], size[bins], workers)[sources]
        sent[sources] = received[targets] = np.maximum(sent[sources], received[targets]) + amount
    return float(max(sent.max(initial=0.0), received.max(initial=0.0)))


def _phase_of_bins(size: Floats, pairs: Ints, workers: int) -> Ints:
    """The phase of every bin: that in which its pair of workers gets to its first byte."""
    traffic = np.zeros((workers, workers))
    np.add.at(traffic.reshape(-1), pairs, size)
    starts = size.cumsum() - size
    first = np.concatenate([[True], np.diff(pairs) != 0])[: len(pairs)]
    starts -= np.repeat(starts[first], np.diff(np.append(np.flatnonzero(first), len(pairs))))
    phase = np.zeros(len(pairs), np.int64)
    done = np.zeros(traffic.size)
    for number, (matched, amount) in enumerate(_matchings(traffic)):
        cells = np.arange(len(matched)) * len(matched) + matched
        done[cells] += amount
        phase[starts >= done[pairs] * (1 - ROUNDING)] = number + 1
    return phase


def _matchings(traffic: Floats) -> list[tuple[Ints, float]]:
    """Matchings that add up to the traffic with idle time: the target of every worker, how long."""
    # Imported here, since every process of every worker would wait for it otherwise.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    left = _filled_up(traffic)
    found = []
    rows, longest = np.arange(len(left)), left.max(initial=0.0)
    shortest = longest
    while shortest > NOTHING * longest:
        graph = csr_matrix(left >= shortest)
        matched = maximum_bipartite_matching(graph, perm_type="column").astype(np.int64)
        if (matched < 0).any():
            shortest /= 2
            continue
        amount = float(left[rows, matched].min())
        left[rows, matched] -= amount
        found.append((matched, amount))
    return found


def _filled_up(traffic: Floats) -> Floats:
    """The traffic with idle time added, so that all rows and columns are equally long."""
    sends, receives = traffic.sum(axis=1), traffic.sum(axis=0)
    length = max(sends.max(initial=0.0), receives.max(initial=0.0))
    filled, row, column = traffic.copy(), 0, 0
    idle_out, idle_in = length - sends, length - receives
    while row < len(filled) and column < len(filled):
        idle = min(idle_out[row], idle_in[column])
        filled[row, column] += idle
        idle_out[row] -= idle
        idle_in[column] -= idle
        row, column = (row + 1, column) if idle_out[row] <= idle_in[column] else (row, column + 1)
    return filled
