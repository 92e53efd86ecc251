"""Running an application of several executors to its end, and what it left."""

import fcntl
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.log.history import History
from tests.support.cluster.application import KEYS, KNOWN, ROWS

PRINTED = "printed"


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """A directory that is filled once, whichever of several processes of pytest needs it first."""
    mine = factory.getbasetemp()
    shared = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    home, done = shared / name, shared / f"{name}-done"
    with (shared / f"{name}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            home.mkdir()
            fill(home)
            done.touch()
    return home


def run(module: str, home: Path, java: str, code: int = 0) -> None:
    """Run a module's `main` in a process of its own, with which its executors end."""
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home / "executors"),
    }
    command = [sys.executable, "-m", module, str(home), java]
    with (
        (home / PRINTED).open("a") as printed,
        subprocess.Popen(
            command,
            stdout=printed,
            stderr=printed,
            env=os.environ | environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.wait() == code, (home / PRINTED).read_text()[-5000:]
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def check(home: Path) -> None:
    """Nothing is lost and nothing counted twice, in state and in the sink."""
    assert verify(home / "checkpoint").findings == []
    last = History(home / "checkpoint").epochs()[-1]
    check_state(home, last)
    files = (home / "output").rglob("*.parquet")
    delivered = Counter(
        pair for rows in map(pq.read_table, files) for pair in pairs(rows, "k", "n")
    )
    assert delivered == {(k, k + i + 1): 1 for k, count in seen(last).items() for i in range(count)}


def check_state(home: Path, epoch: int) -> None:
    """The state of an epoch is that of an undisturbed run."""
    state = Snapshot.open(home / "checkpoint", "counts", epoch=epoch)
    counts = Counter(pair for rows in state.read() for pair in pairs(rows, "k", "n"))
    times = seen(epoch)
    assert counts == {(k, k + times[k]): 1 for k in range(KNOWN)}


def seen(epoch: int) -> Counter[int]:
    """How often each key has come up to an epoch."""
    return Counter(value % KEYS for value in range(ROWS * (epoch + 1)))


def pairs(rows: pa.Table, one: str, other: str) -> Iterator[tuple[int, int]]:
    """What two columns have."""
    return zip(rows.column(one).to_pylist(), rows.column(other).to_pylist(), strict=True)


def places(home: Path, epoch: int) -> dict[int, str]:
    """The executor of each worker."""
    manifest = History(home / "checkpoint").manifest(epoch)
    assert manifest is not None
    return {receipt.worker: receipt.executor for receipt in manifest.receipts["counts"]}


def fetched(home: Path, epoch: int) -> int:
    """The bytes that workers fetched from the checkpoint."""
    manifest = History(home / "checkpoint").manifest(epoch)
    assert manifest is not None
    return sum(receipt.fetched for receipt in manifest.receipts["counts"])
