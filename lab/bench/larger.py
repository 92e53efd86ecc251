"""Are results right when the state is three times as large as the memory that the query may use?

All processes of an application (the driver's Python and JVM, on whose heap the executor is, and
Python workers) are put into one control group with a limit on memory. What they read and write
through the page cache counts in it, too, but can be reclaimed. The state is rows of about 4 KB by a
number: each key comes once, and some come once more. The truth is known, and the state is compared
with it. It needs version 1 of the memory controller, and the right to make a group (root).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from godwit.cli.output import note
from godwit.log.history import History
from godwit.spark.session import session
from lab.bench.application import LOCAL, SETTINGS, WORKERS, Bench
from lab.bench.results import BenchResults
from lab.tools.filling import counter
from lab.tools.processes import sampled
from lab.tools.tables import show_table
from lab.tools.turns import EpochCounter

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT = 2000 << 20
HEAP = "500m"
OPERATOR = "texts"
TEXT = "repeat(lpad(hex(xxhash64({})), 16, '0'), 256)"  # 4,096 characters
ROWS = 10_000  # records an epoch
MIB = 1 << 20


def run(bench: Bench) -> None:
    keys = bench.pick(1_650_000, 100_000)
    again = keys // 10
    with limited(LIMIT) as group:
        found = _apart(group, bench.directory / "checkpoint", keys, again)
        peak = int((group / "memory.max_usage_in_bytes").read_text())
        reclaims = int((group / "memory.failcnt").read_text())
    found |= _checked(bench.spark, bench.directory / "checkpoint", keys, again)
    report = BenchResults(
        "larger", bench, {"limit": LIMIT, "heap": HEAP, "rows": ROWS, "again": again}
    )
    times = found["state_bytes"] / LIMIT
    report.add({"keys": keys}, **found, peak_bytes=peak, reclaims=reclaims, state_by_limit=times)
    show_table(
        ["keys", "state MiB", "limit MiB", "state / limit", "max PSS MiB", "seconds", "right"],
        [
            [
                keys,
                found["state_bytes"] / MIB,
                LIMIT / MIB,
                times,
                found["pss_mib"],
                found["seconds"],
                "yes" if found["wrong"] == 0 else f"no: {found['wrong']:,} rows are wrong",
            ]
        ],
    )
    if found["wrong"]:
        raise SystemExit("the state is not what it should be")


@contextmanager
def limited(limit: int) -> Iterator[Path]:
    """A control group whose processes may use `limit` bytes together."""
    group = GROUPS / f"godwit-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        raise SystemExit(
            f"memory cannot be limited ({error}): this needs version 1 of the memory controller at "
            f"{GROUPS}, and root"
        ) from None
    try:
        yield group
    finally:
        while (group / "cgroup.procs").read_text():  # the JVM ends a little after its Python
            time.sleep(0.1)
        group.rmdir()


def _apart(group: Path, checkpoint: Path, keys: int, again: int) -> dict[str, Any]:
    """Run the application in a process of its own, in the group from its first instruction on."""

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, "-m", "lab.bench.larger", str(checkpoint), str(keys), str(again)]
    done = subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=enter)
    if done.returncode:
        raise SystemExit(f"the application ended with {done.returncode}; within its limit?")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _application(checkpoint: Path, keys: int, again: int) -> dict[str, Any]:
    epochs = -(-(keys + again) // ROWS)
    sink = EpochCounter()
    conf = {"spark.driver.memory": HEAP, "spark.local.dir": str(checkpoint.parent / "limited")}
    with session(LOCAL, SETTINGS | conf) as spark, sampled() as samples:
        numbers = counter(spark, ROWS, "value").where(f"value < {keys + again}")
        records = numbers.selectExpr(f"value % {keys} AS k")
        query = (
            gw.stream(records.selectExpr("k", f"{TEXT.format('k')} AS text"))
            .aggregate(OPERATOR, key="k", n=gw.count(), text=gw.max("text"))
            .to(gw.foreach_batch(lambda rows, epoch: _note(sink, epoch, epochs, samples)))
            .start(checkpoint, workers=WORKERS, options=gw.Options(retention=2))
        )
        sink.wait(query.spark_query, epochs)
        query.stop()
    return {
        "state_bytes": _state_bytes(checkpoint),
        "pss_mib": max(mib for _, mib in samples),
        "pss_mib_by_sample": [round(mib) for _, mib in samples],
        "seconds": samples[-1][0] - samples[0][0],
    }


def _checked(spark: SparkSession, checkpoint: Path, keys: int, again: int) -> dict[str, int]:
    """How many rows the state has, and how many are wrong; without the limit, since to read all of
    it at once is not the query's business."""
    state = gw.read_state(spark, checkpoint, OPERATOR)
    right = f"n = IF(k < {again}, 2, 1) AND k BETWEEN 0 AND {keys - 1} AND text = "
    row: Any = state.selectExpr(
        "count(*) AS rows", f"count_if({right}{TEXT.format('k')}) AS right"
    ).head()
    return {"rows": row.rows, "wrong": abs(keys - row.rows) + row.rows - row.right}


def _note(sink: EpochCounter, epoch: int, epochs: int, samples: list[tuple[float, float]]) -> None:
    sink.note(epoch)
    if epoch % 10 == 0 and samples:
        note(f"  epoch {epoch} of {epochs}: PSS {samples[-1][1]:,.0f} MiB")


def _state_bytes(checkpoint: Path) -> int:
    manifest = History(checkpoint).last()
    assert manifest is not None
    trees = [tree.unpack() for tree in manifest.trees[OPERATOR].values()]
    return sum(ref.bytes for tree in trees for ref in tree.files.values())


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    print(json.dumps(_application(Path(path), *map(int, numbers))))
