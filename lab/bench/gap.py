"""Does a pause cost anything? What is fetched after one in which Spark ends idle Python workers.

A count by key answers, waits without records until the workers that Spark has had for a minute have
ended, at least 70 seconds, and answers again: its state should still be where it was, in the cache
of the executor.
"""

import time
from contextlib import suppress
from pathlib import Path

import godwit as gw
from godwit.cli.output import note
from godwit.log.history import History
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults
from lab.tools.processes import family

OPERATOR = "counts"
PAUSE = 70.0  # seconds
LONGEST = 300.0


def run(bench: Bench) -> None:
    keys = bench.pick(1_000_000, 10_000)
    report = BenchResults("gap", bench, {"keys": keys, "pause": PAUSE})
    source, checkpoint = bench.directory / "records", bench.directory / "checkpoint"
    records = bench.spark.range(0, keys, 1, WORKERS).selectExpr("xxhash64(id) AS k")
    records.write.parquet(str(source))
    query = (
        gw.stream(bench.spark.readStream.schema("k long").parquet(str(source)))
        .aggregate(OPERATOR, key="k", n=gw.count())
        .to(gw.foreach_batch(lambda rows, epoch: None))
        .start(checkpoint, workers=WORKERS)
    )
    try:
        query.process_all_available()
        workers = _python_workers()
        note(f"    {len(workers)} Python workers; a pause of {PAUSE:.0f} s")
        began = time.monotonic()
        while (waited := time.monotonic() - began) < PAUSE or workers & _python_workers():
            if waited > LONGEST:
                left = ", ".join(map(str, sorted(workers & _python_workers())))
                raise TimeoutError(f"Spark has not ended these processes in {waited:.0f} s: {left}")
            time.sleep(1)
        records.write.mode("append").parquet(str(source))
        query.process_all_available()
        epoch = query.epoch
    finally:
        query.stop()
    manifest = History(checkpoint).manifest(epoch or 0)
    assert manifest is not None
    fetched = sum(receipt.fetched for receipt in manifest.receipts[OPERATOR])
    counted = gw.read_state(bench.spark, checkpoint, OPERATOR).where("n = 2").count()
    report.add(
        {"keys": keys},
        waited=round(waited, 1),
        ended_workers=len(workers),
        fetched_bytes=fetched,
        keys_counted_twice=counted,
    )
    print(
        f"After {waited:.0f} s, in which {len(workers)} Python workers ended, the next epoch "
        f"fetched {fetched} bytes; {counted:,} of {keys:,} keys are right."
    )


def _python_workers() -> frozenset[int]:
    """The processes that a daemon of Spark's Python has forked."""
    parents = {pid: parent for pid, parent in family().items() if _is_of_daemon(pid)}
    return frozenset(pid for pid, parent in parents.items() if parent in parents)


def _is_of_daemon(pid: int) -> bool:
    """The JVM's command line names the module, too, as a setting."""
    with suppress(OSError):  # it has ended
        return b"\0-m\0pyspark.daemon\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
