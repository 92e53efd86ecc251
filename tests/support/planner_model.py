"""A second, plain implementation: recursion, matchings by scipy, value iteration."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from godwit.planner.chain import Chain

Row = tuple[int, ...]
ROUNDING = 1e-9


def balanced(load: Sequence[float], nodes: int, tau: float) -> list[Row]:
    """All balanced partitionings, nodes without tasks last."""
    limit = (1 + tau) * sum(load) / nodes * (1 + ROUNDING)

    def rows(start: int, left: int) -> Iterator[Row]:
        if start == len(load):
            yield (start,) * left
        elif left:
            for stop in range(start + 1, len(load) + 1):
                if sum(load[start:stop]) <= limit:
                    yield from ((stop, *rest) for rest in rows(stop, left - 1))

    return list(rows(0, nodes))


def moved(origin: Row, target: Row, size: Sequence[float]) -> float:
    """The least state moved, by a maximum matching of all parts, crossing or not."""
    stays = np.zeros((len(origin), len(target)))
    for i, (a, b) in enumerate(zip((0, *origin), origin, strict=False)):
        for j, (c, d) in enumerate(zip((0, *target), target, strict=False)):
            stays[i, j] = sum(size[max(a, c) : min(b, d)]) if max(a, c) < min(b, d) else 0
    owners, parts = linear_sum_assignment(stays, maximize=True)
    return float(sum(size) - stays[owners, parts].sum())


def projected(
    chain: Chain, load: Sequence[float], size: Sequence[float], tau: float, gamma: float
) -> dict[Row, float]:
    """The corrected Figure 6 of Ding et al., word by word."""
    rows = {nodes: balanced(load, nodes, tau) for nodes in chain.nodes}
    everything = [row for nodes in chain.nodes for row in rows[nodes]]
    cost = np.array([[moved(a, b, size) for b in everything] for a in everything])
    nodes_of = np.array([len(row) for row in everything])
    share = np.array([[chain.row(n).get(to, 0.0) for to in chain.nodes] for n in nodes_of])
    values = np.zeros(len(everything))
    while True:
        ahead = cost + gamma * values
        best = np.stack([ahead[:, nodes_of == to].min(axis=1) for to in chain.nodes], axis=1)
        after = (share * best).sum(axis=1)
        if np.abs(after - values).max() < 1e-12:
            return dict(zip(everything, after.tolist(), strict=True))
        values = after


@st.composite
def weights(draw: st.DrawFn, tasks: int) -> list[float]:
    """Loads or sizes of tasks: small whole numbers, zeros among them, or fractions."""
    unit = draw(st.sampled_from([1.0, 0.1, 1 / 7]))
    return draw(st.lists(st.integers(0, 4).map(unit.__mul__), min_size=tasks, max_size=tasks))


@st.composite
def chains(draw: st.DrawFn, most: int = 4) -> Chain:
    """Chains over two or three numbers of nodes, impossible migrations among them."""
    nodes = tuple(sorted(draw(st.sets(st.integers(1, most), min_size=2, max_size=3))))
    row_of = st.lists(st.integers(0, 3), min_size=len(nodes), max_size=len(nodes))
    seen = [draw(row_of) for _ in nodes]
    rows = [np.array(row, np.float64) + (not any(row)) for row in seen]
    return Chain(nodes, tuple(tuple((row / row.sum()).tolist()) for row in rows))


def least_tau(load: Sequence[float], nodes: Sequence[int]) -> float:
    """A tau for which every number of nodes has a balanced partitioning."""
    heaviest: npt.NDArray[np.float64] = np.max(load) * np.asarray(nodes) / max(sum(load), 1e-9)
    return float(heaviest.max())
