"""Merges are shared out, however the bins are."""

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from godwit.driver.merges import merges_by_worker
from godwit.log.intent import Intent
from godwit.model.ids import Epoch
from godwit.model.routing import SEGMENTS, Routing
from godwit.model.tree import Merge
from godwit.state.run import SLICES, slices_of


@pytest.mark.parametrize("bins", [8, 64, 4096, 16384])
@pytest.mark.parametrize("dealt", ["evenly", "in turns", "anyhow"])
def test_every_slice_is_merged_by_one_who_has_bins_in_it(bins: int, dealt: str) -> None:
    owners: dict[str, npt.NDArray[Any]] = {
        "evenly": Routing.even(bins, 4).owners,
        "in turns": np.arange(bins) % 4,
        "anyhow": np.random.default_rng(bins).integers(0, 4, bins),
    }
    routing = Routing(owners[dealt], 4)
    due = tuple(Merge(step * 27 % SEGMENTS, 7) for step in range(SEGMENTS // 2))
    intent = Intent(Epoch(0), 0, "q", "o", {"counts": routing}, {"counts": {"value": due}})
    merged, shares = Counter[tuple[int, int]](), Counter[int]()
    for worker, given in merges_by_worker(intent, "counts")["value"].items():
        assert len({merge.segment for merge in given}) == len(given)
        for merge in given:
            assert merge.slices & ~int(slices_of(routing)[worker, merge.segment]) == 0
            assert merge.layers == 7
            shares[worker] += (merge.slices % (1 << SLICES)).bit_count()
            merged.update((merge.segment, s) for s in range(SLICES) if merge.slices >> s & 1)
    if bins >= SEGMENTS * SLICES or dealt != "anyhow":
        assert max(shares.values()) <= 1.3 * shares.total() / 4
    assert merged == Counter((merge.segment, s) for merge in due for s in range(SLICES))
