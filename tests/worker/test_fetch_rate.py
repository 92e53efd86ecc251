"""A bound on what an executor reads, from the option to the receipt."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from godwit.errors import ConfigError
from godwit.model.ids import WorkerId
from godwit.model.receipt import Receipt
from godwit.state import cache
from godwit.state.cache import CacheSpec
from tests.support.simulated import begin, drive, simulate, words

KEYS = [f"word {i}" for i in range(100)]


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(ConfigError, match="fetch_rate"):
        CacheSpec("cache", 1 << 20, fetch_rate=rate)


def test_a_receipt_says_how_long_it_waited_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate at which the bytes of the state take at least 50 ms."""
    sim = simulate(tmp_path, workers=1)
    sim.feed(words(*KEYS))
    monkeypatch.setattr(cache, "_opened", cache._Opened())  # as in a process that has none open
    shutil.rmtree(tmp_path / "cache-0")
    driver = drive(tmp_path)
    work = driver.work(begin(driver, 1), "counts")
    size = sum(ref.bytes for tree in work.trees.values() for ref in tree.files.values())
    bound = replace(work, cache=replace(work.cache, fetch_rate=20.0 * size))
    records = work.operator.input.empty_table().from_pylist(words(*KEYS), work.operator.input)
    receipt = bound.run(WorkerId(0), records.to_batches())
    assert receipt.fetched == size
    assert receipt.fetch_seconds >= 0.05
    assert receipt.fetch_seconds <= sum(receipt.seconds.values())
    again = Receipt.from_text(receipt.to_text())
    assert again.statistics().fetch_seconds == receipt.fetch_seconds
