"""The best placement of few bins, by integer programming (HiGHS, a part of SciPy)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from godwit.planner.assignment import Floats
from godwit.planner.bin_assignment import Owners

TOLERANCE = 1e-6  # by which HiGHS may overstep a constraint
NODES = 2_000  # of the search tree, after which it is given up


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found: a placement, if any, and that none has a lower cost than `bound`."""

    owners: Owners | None
    bound: float
    infeasible: bool = False


def solve(
    owners: Owners,
    load: Floats,
    size: Floats,
    limit: Floats,
    candidates: npt.NDArray[np.int64],
    workers: int,
    most_moves: int | None,
) -> Solution:
    """The cheapest placement onto any `workers` of the candidates, each within its limit.

    The limits are kept up to the tolerance of the solver: the caller has to look.
    """
    # Imported here, since every process of every worker would wait for it otherwise.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix, eye_array, hstack, kron

    bins, count = len(owners), len(candidates)
    chosen = workers < count  # else all candidates work, and there is nothing to choose
    stays = (owners[:, None] == candidates).astype(np.float64)
    cost_unit, load_unit = max(size.max(), 1e-300), max(limit.max(), 1e-300)

    # One variable for each bin and candidate; then one for each candidate: does it work?
    one_owner = kron(eye_array(bins), np.ones((1, count)))
    loads = kron(csr_matrix(load[None] / load_unit), eye_array(count))
    members = kron(np.ones((1, bins)), eye_array(count))
    works = eye_array(count) * -1.0
    none = csr_matrix((bins, count))
    rows = [
        LinearConstraint(hstack([one_owner, none]), 1, 1),
        LinearConstraint(
            hstack([loads, works.multiply(limit[candidates] / load_unit)]), -np.inf, 0
        ),
        LinearConstraint(np.append(np.zeros(bins * count), np.ones(count)), workers, workers),
    ]
    if chosen:  # a bin without load would not mind a worker that does not work
        rows.append(LinearConstraint(hstack([members, works * bins]), -np.inf, 0))
    if most_moves is not None:
        homes = np.append(stays.ravel(), np.zeros(count))
        rows.append(LinearConstraint(homes, bins - most_moves, np.inf))
    found = milp(
        np.append(-(stays * size[:, None]).ravel() / cost_unit, np.zeros(count)),
        integrality=np.ones((bins + 1) * count),
        bounds=Bounds(0, 1),
        constraints=rows,
        options={"node_limit": NODES, "mip_rel_gap": 0.0},
    )
    total = float(size.sum())
    if found.status == 2:
        return Solution(None, total, infeasible=True)
    dual = found.mip_dual_bound
    bound = 0.0 if dual is None else max(0.0, total + float(dual) * cost_unit)
    if found.x is None:
        return Solution(None, bound)
    placed = candidates[found.x[: bins * count].reshape(bins, count).argmax(axis=1)]
    return Solution(placed.astype(np.int32), bound)
