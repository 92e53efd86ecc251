"""Another query that is killed: two inputs, and notices that wait for event time.

It is the workload PAIRS of the random histories, with its model. One input file is one epoch.
"""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import godwit as gw
from godwit.api.stream import then
from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.log.history import History
from godwit.model.schema import to_ddl
from tests.support.counting_workloads import Row, in_order, tabulate
from tests.support.feed import Feed
from tests.support.timed_workloads import PAIRS

ROWS = 30  # a file


def feed(home: Path) -> Feed:
    return Feed(home / "input", to_ddl(PAIRS.schema))


def job(spark: SparkSession, home: Path) -> gw.Job:
    pairs = then(gw.stream(feed(home).stream(spark)), PAIRS.operator)
    return pairs.to(gw.files(home / "output"))


def batch(number: int) -> list[Row]:
    return random.Random(number).choices(PAIRS.records, k=ROWS)


def check(home: Path, files: int) -> None:
    """All files are in the state and the output, each once; some notices wait still."""
    history, model = History(home / "checkpoint"), PAIRS.model()
    batches = [batch(number) for number in range(files)]
    for epoch in history.epochs():
        manifest = history.manifest(epoch)
        assert manifest is not None
        records = sum(receipt.records for receipt in manifest.receipts[PAIRS.operator.name])
        outputs = model.feed(batches.pop(0) if records else [])
        assert delivered(home / "output" / f"epoch={epoch}") == in_order(outputs)
    assert batches == []
    state = model.state()
    assert state["_notices"]
    for table, rows in state.items():
        snapshot = Snapshot.open(home / "checkpoint", PAIRS.operator.name, table=table)
        found = [row for part in snapshot.read() for row in part.to_pylist()]
        assert tabulate(found) == in_order(rows)
    assert verify(home / "checkpoint").findings == []


def delivered(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.glob("*.parquet"))
    return in_order(row for file in files for row in pq.ParquetFile(file).read().to_pylist())
