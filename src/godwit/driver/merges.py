"""What an epoch does to the trees: the merges that it gives out, and the files that it adds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from godwit.log.intent import Intent, Merges
from godwit.migration.timeline import Timeline
from godwit.model.ids import WorkerId
from godwit.model.manifest import Manifest
from godwit.model.receipt import Receipt
from godwit.model.tree import Merge, Tree
from godwit.state.run import dealt_slices, slices_of

FACTOR = 4  # rows merged in an epoch for each row changed in the one before
FLOOR = 200_000

Trees = dict[str, dict[str, Tree]]  # by operator and table


def plan_merges(trees: Trees, last: Manifest | None, timelines: Mapping[str, Timeline]) -> Merges:
    """Segments to merge in the next epoch: in proportion to what the last epoch changed."""
    plans: dict[str, dict[str, tuple[Merge, ...]]] = {}
    for name, tables in trees.items():
        changed = sum(receipt.rows for receipt in last.receipts.get(name, ())) if last else 0
        budget = max(FLOOR, FACTOR * changed)
        moving = set().union(*timelines[name].sought().values())
        plans[name] = {table: tree.plan_merges(budget, moving) for table, tree in tables.items()}
    return plans


def merges_by_worker(intent: Intent, operator: str) -> dict[str, dict[WorkerId, list[Merge]]]:
    """By table and worker: the merges that an intent gives out, to all owners of a segment."""
    slices = dealt_slices(intent.routings[operator])
    merges: dict[str, dict[WorkerId, list[Merge]]] = {}
    for table, due in intent.merges.get(operator, {}).items():
        by_worker: dict[WorkerId, list[Merge]] = defaultdict(list)
        for merge in due:
            for worker in map(WorkerId, np.flatnonzero(slices[:, merge.segment]).tolist()):
                own = int(slices[worker, merge.segment])
                by_worker[worker].append(replace(merge, slices=own))
        merges[table] = by_worker
    return merges


def grown(
    trees: Mapping[str, Tree], intent: Intent, operator: str, group: Sequence[Receipt]
) -> dict[str, Tree]:
    """The trees after an epoch: what was merged replaces its layers, deltas go on top."""
    by_worker = {receipt.worker: receipt for receipt in group}
    planned = merges_by_worker(intent, operator)
    slices = slices_of(intent.routings[operator]).tolist()
    after = {}
    for table, tree in trees.items():
        merged = (
            (merges, by_worker[worker].merged.get(table, ()))
            for worker, merges in planned.get(table, {}).items()
        )
        deltas = ((receipt.deltas.get(table, ()), slices[receipt.worker]) for receipt in group)
        after[table] = tree.replace(merged).add(deltas)
    return after
