"""Workers that share segments: each reads and merges what is its own, and fetches nothing else."""

from pathlib import Path

import numpy as np
import pytest

from godwit.inspect.audit import verify
from godwit.log.history import History
from godwit.migration.strategies import all_at_once
from godwit.model import tree
from godwit.model.routing import Routing
from tests.support.simulated import counts, simulate, words

KEYS = [f"word {i}" for i in range(500)]


def fetched(checkpoint: Path, epoch: int) -> int:
    manifest = History(checkpoint).manifest(epoch)
    assert manifest is not None
    return sum(receipt.fetched for group in manifest.receipts.values() for receipt in group)


def merged(checkpoint: Path, epoch: int) -> set[int]:
    """The workers that merged something."""
    manifest = History(checkpoint).manifest(epoch)
    assert manifest is not None
    receipts = manifest.receipts["counts"]
    return {receipt.worker for receipt in receipts if receipt.merged_rows}


@pytest.mark.parametrize("bins", [128, 4096])
def test_who_shares_a_segment_fetches_nothing_in_the_steady_state(
    tmp_path: Path, bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "MAX_LAYERS", 3)
    epochs = 3 * tree.MAX_LAYERS
    sim = simulate(tmp_path, workers=3, bins=bins, retention=3 * epochs)
    for _ in range(epochs):
        sim.feed(words(*KEYS))
    owners = np.random.default_rng(bins).integers(0, 3, bins, np.int32)
    sim.migrate(Routing(owners, 3), strategy=all_at_once())
    for _ in range(epochs):
        sim.feed(words(*KEYS))
    assert fetched(tmp_path, epochs) > 0
    steady = range(epochs + 1, 2 * epochs)
    assert [fetched(tmp_path, epoch) for epoch in steady] == [0] * len(steady)
    assert set().union(*(merged(tmp_path, epoch) for epoch in steady)) == {0, 1, 2}
    assert counts(sim) == dict.fromkeys(KEYS, 2 * epochs)
    assert verify(tmp_path).findings == []
