"""An executor without a worker is lost in mid-epoch, and with it records that would come out
otherwise."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.log.history import History
from tests.support.cluster.application import ROWS
from tests.support.cluster.running import pairs, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_records_of_two_attempts_are_never_mixed_and_replicas_are_rebuilt(
    tmp_path: Path, java: str
) -> None:
    run("tests.support.cluster.varying", tmp_path, java)
    checkpoint, history = tmp_path / "checkpoint", History(tmp_path / "checkpoint")
    assert verify(checkpoint).findings == []
    last = history.epochs()[-1]
    state = Snapshot.open(checkpoint, "kept")
    kept = Counter(pair for rows in state.read() for pair in pairs(rows, "k", "value"))
    numbers = Counter(number for _, number in kept.elements())
    assert numbers == dict.fromkeys(range(ROWS * (last + 1)), 1)
    files = map(pq.read_table, (tmp_path / "output").rglob("*.parquet"))
    assert kept == Counter(pair for rows in files for pair in pairs(rows, "k", "value"))
    intent = history.intent(last)
    assert intent is not None
    assert intent.placement is not None
    killed = (tmp_path / "killed").read_text()
    assert all(copies and killed not in copies for copies in intent.placement.placement.replicas)
