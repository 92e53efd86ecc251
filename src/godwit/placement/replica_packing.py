"""Which executors keep copies of which workers' state: bin packing, as in Rhino, section 4.2.1."""

from collections import Counter
from collections.abc import Mapping, Sequence

from godwit.model.ids import ExecutorId

SLACK = 1.25  # an executor keeps its copies while they are at most so many times its share


def place_replicas(
    homes: Sequence[ExecutorId],
    sizes: Sequence[float],
    hosts: Mapping[ExecutorId, str],
    copies: int,
    before: Sequence[Sequence[ExecutorId]] = (),
) -> list[tuple[ExecutorId, ...]]:
    """For each worker up to `copies` executors other than its own, each with about as many bytes.

    Those of workers with one home are apart if they can be, so that they flee to several executors.
    `hosts` names the host of each executor that may hold copies: where there are several, the
    copies of a worker are on hosts other than its own, and different ones. Copies stay where they
    were `before` as long as that is so and the executor has not much more than its share.

    >>> place_replicas(["0", "0", "1"], [5, 3, 4], {"0": "a", "1": "a", "2": "a"}, 1)
    [('1',), ('2',), ('0',)]
    """
    load = dict.fromkeys(hosts, 0.0)
    fleeing = Counter[tuple[ExecutorId, ExecutorId]]()  # by home and executor: the copies there
    share = SLACK * copies * sum(sizes) / max(len(hosts), 1)
    chosen: list[tuple[ExecutorId, ...]] = [()] * len(homes)
    for worker in sorted(range(len(homes)), key=lambda worker: (-sizes[worker], worker)):
        known = before[worker] if worker < len(before) else ()
        taken = [homes[worker]]
        for _ in range(min(copies, len(hosts.keys() - taken))):
            at = {hosts.get(executor) for executor in taken}
            best = min(
                hosts.keys() - taken,
                key=lambda executor: (
                    hosts[executor] in at,
                    load[executor] + sizes[worker] > share and load[executor] > 0,
                    executor not in known,
                    fleeing[homes[worker], executor],
                    load[executor],
                    executor,
                ),
            )
            taken.append(best)
            load[best] += sizes[worker]
            fleeing[homes[worker], best] += 1
        chosen[worker] = tuple(taken[1:])
    return chosen
