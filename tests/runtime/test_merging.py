"""Merges are shared out, however the bins are."""

import numpy as np
import pytest

from godwit.log.intent import Intent
from godwit.model.routing import Routing
from godwit.runtime.merging import merges_by_worker
from godwit.state.run import SEGMENTS


@pytest.mark.parametrize("bins", [8, 64, 4096])
@pytest.mark.parametrize("dealt", ["evenly", "in turns"])
def test_every_worker_merges_segments_of_its_bins(bins: int, dealt: str) -> None:
    routing = Routing.even(bins, 4)
    if dealt == "in turns":
        routing = Routing((np.arange(bins) % 4).astype(np.int32), 4)
    due = [[segment, 2] for segment in range(SEGMENTS)]
    intent = Intent(0, 0, "q", "o", {"counts": routing}, {"counts": {"value": due}})
    shares = merges_by_worker(intent, "counts")["value"]
    assert {worker: len(merges) for worker, merges in shares.items()} == dict.fromkeys(range(4), 16)
    for worker, merges in shares.items():
        for segment in (merge.segment for merge in merges):
            first, last = segment * bins // SEGMENTS, ((segment + 1) * bins - 1) // SEGMENTS
            assert worker in routing.owners[first : last + 1]
