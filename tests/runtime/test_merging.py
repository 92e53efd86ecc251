"""Merges are shared out, however the bins are."""

import numpy as np
import pytest

from godwit.log.intent import Intent
from godwit.model.routing import SEGMENTS, Routing
from godwit.runtime.merging import merges_by_worker
from godwit.state.file import WrittenFile
from godwit.state.table import FileRef
from godwit.state.tree import MAX_RUNS, Tree


@pytest.mark.parametrize("bins", [8, 64, 4096])
@pytest.mark.parametrize("dealt", ["evenly", "in turns"])
def test_every_worker_merges_segments_of_its_bins(bins: int, dealt: str) -> None:
    routing = Routing.even(bins, 4)
    if dealt == "in turns":
        routing = Routing((np.arange(bins) % 4).astype(np.int32), 4)
    tree = Tree.empty()
    for number in range(MAX_RUNS + 1):
        file = WrittenFile(FileRef(f"{number}", 10 * SEGMENTS, 1, 0), (10,) * SEGMENTS)
        tree = tree.add([file])
    merges = tree.plan_merges(5 * (MAX_RUNS + 1) * SEGMENTS)  # enough for half of them
    due = [[merge.segment, merge.runs] for merge in merges]
    intent = Intent(0, 0, "q", "o", {"counts": routing}, {"counts": {"value": due}})
    shares = merges_by_worker(intent, "counts")["value"]
    assert set(shares) == set(range(4))
    assert max(map(len, shares.values())) <= 10
    for worker, given in shares.items():
        for segment in (merge.segment for merge in given):
            first, last = segment * bins // SEGMENTS, ((segment + 1) * bins - 1) // SEGMENTS
            assert worker in routing.owners[first : last + 1]
