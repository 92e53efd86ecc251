"""Two executors: workers stay on theirs, bins cross between them, and one of them is killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from godwit.log.history import History
from godwit.runtime.snapshot import Snapshot
from godwit.runtime.verify import verify
from tests.spark.cluster import application
from tests.spark.cluster.application import KEYS, ROWS, TARGET

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, java: str) -> Path:
    """A checkpoint that the application has left when it was done."""
    home = tmp_path_factory.mktemp("cluster")
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home / "executors"),
    }
    command = [sys.executable, "-m", "tests.spark.cluster.application", str(home), java]
    with (
        (home / "printed").open("w") as printed,
        subprocess.Popen(
            command,
            stdout=printed,
            stderr=printed,
            env=os.environ | environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.wait() == 0, (home / "printed").read_text()[-5000:]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    return home


def places(home: Path, epoch: int) -> dict[int, str]:
    """The executor of each worker."""
    manifest = History(home / "checkpoint").manifest(epoch)
    assert manifest is not None
    return {receipt["worker"]: receipt["place"] for receipt in manifest.receipts["counts"]}


def workers(home: Path, epoch: int) -> int:
    intent = History(home / "checkpoint").intent(epoch)
    assert intent is not None
    return intent.routings["counts"].workers


def test_nothing_is_lost_and_nothing_counted_twice(home: Path) -> None:
    assert verify(home / "checkpoint").findings == []
    state = Snapshot.open(home / "checkpoint", "counts")
    counts = {row["k"]: row["n"] for rows in state.read() for row in rows.to_pylist()}
    total = ROWS * (History(home / "checkpoint").epochs()[-1] + 1)
    assert counts == Counter(value % KEYS for value in range(total))
    delivered = Counter[int]()
    for rows in map(pq.read_table, (home / "output").rglob("*.parquet")):
        delivered.update(rows.column("k").to_pylist())
    assert delivered == counts


def test_workers_stay_on_their_executors_while_others_come(home: Path) -> None:
    first = places(home, 0)
    assert len(set(first.values())) == 2
    killed = int((home / "killed").read_text())
    for epoch in range(killed + 1):
        assert places(home, epoch).items() >= first.items()
    assert workers(home, killed) == 4
    assert Counter(places(home, killed).values()) == dict.fromkeys(first.values(), 2)


def test_bins_that_cross_are_fetched(home: Path) -> None:
    history = History(home / "checkpoint")
    moved = next(e for e in history.epochs() if workers(home, e) == 4)
    manifest, before = history.manifest(moved), history.intent(moved - 1)
    assert manifest is not None
    assert before is not None
    assert before.routings["counts"] != TARGET
    assert sum(receipt["fetched"] for receipt in manifest.receipts["counts"]) > 0


def test_the_lost_executor_is_replaced(home: Path) -> None:
    killed, last = int((home / "killed").read_text()), History(home / "checkpoint").epochs()[-1]
    before, after = set(places(home, killed).values()), set(places(home, last).values())
    assert len(after) == 2
    assert len(before & after) == 1


def test_it_goes_on_in_another_application(home: Path, spark: SparkSession) -> None:
    last = History(home / "checkpoint").epochs()[-1]
    query = application.start(spark, home)
    assert query.await_epoch(last + 2)
    query.stop()
    test_nothing_is_lost_and_nothing_counted_twice(home)
    assert workers(home, last + 2) == 2
