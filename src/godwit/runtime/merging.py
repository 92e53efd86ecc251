"""What an epoch does to the trees: the merges that it gives out, and the files that it adds."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from godwit.log.intent import Intent
from godwit.log.manifest import Manifest
from godwit.model.routing import SEGMENTS
from godwit.protocol.course import Course
from godwit.runtime.receipt import Receipt
from godwit.state.tree import Merge, Tree

FACTOR = 4  # rows merged in an epoch for each row changed in the one before
FLOOR = 200_000
SAMPLE = 64  # bins of a segment whose owners may merge it

Trees = dict[str, dict[str, Tree]]  # by operator and table


def plan_merges(
    trees: Trees, last: Manifest | None, courses: Mapping[str, Course]
) -> dict[str, Any]:
    """Segments to merge in the next epoch: in proportion to what the last epoch changed."""
    plans: dict[str, Any] = {}
    for name, tables in trees.items():
        changed = sum(receipt["rows"] for receipt in last.receipts.get(name, ())) if last else 0
        budget = max(FLOOR, FACTOR * changed)
        moving = set().union(*courses[name].sought().values())
        plans[name] = {
            table: [[due.segment, due.runs] for due in tree.plan_merges(budget, moving)]
            for table, tree in tables.items()
        }
    return plans


def merges_by_worker(intent: Intent, operator: str) -> dict[str, dict[int, list[Merge]]]:
    """By table and worker: the merges that an intent gives out.

    A segment is merged by an owner of some of its bins, the one with fewest merges so far.
    """
    owners = intent.routings[operator].owners
    merges: dict[str, dict[int, list[Merge]]] = {}
    for table, due in intent.merges.get(operator, {}).items():
        by_worker: dict[int, list[Merge]] = defaultdict(list)
        for segment, runs in due:
            first, last = (s * len(owners) // SEGMENTS for s in (segment, segment + 1))
            among = owners[first : max(last, first + 1) : max(1, (last - first) // SAMPLE)]
            worker = min(set(among.tolist()), key=lambda one: (len(by_worker[one]), one))
            by_worker[worker].append(Merge(segment, runs))
        merges[table] = by_worker
    return merges


def grown(
    trees: Mapping[str, Tree], intent: Intent, operator: str, group: Sequence[Receipt]
) -> dict[str, Tree]:
    """The trees after an epoch: merged runs replace their inputs, deltas go on top."""
    by_worker = {receipt.worker: receipt for receipt in group}
    planned = merges_by_worker(intent, operator)
    after = {}
    for table, tree in trees.items():
        for worker, merges in planned.get(table, {}).items():
            tree = tree.replace(merges, by_worker[worker].merged.get(table, ()))
        deltas = (file for receipt in group for file in receipt.deltas.get(table, ()))
        after[table] = tree.add(deltas)
    return after
