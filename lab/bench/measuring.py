"""What does it cost to measure the load and the state of every bin?

Load is counted in every epoch: an operator's work on records of as many random keys as there are,
without Spark, once as it is and once with `Loads.of` replaced, in turns. State is counted when
somebody plans: its rows by bin are searched in the files. Times are those of a processor.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import godwit.operators as ops
from godwit.cli.output import note
from godwit.driver.driver import Driver
from godwit.inspect.targets import Measured
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.hashing import Hashes, hash_rows
from godwit.model.ids import Epoch, WorkerId
from godwit.model.loads import Loads
from godwit.operators import AggregateOperator
from godwit.state.cache import CacheSpec
from godwit.state.table import HASH
from lab.bench.application import Bench
from lab.bench.results import BenchResults, show, spread
from lab.tools.tables import show_table

SCHEMA = pa.schema({"k": pa.int64(), "n": pa.int64()})
COUNTS = AggregateOperator.of("counts", "k", {"rows": ops.count(), "total": ops.sum("n")}, SCHEMA)
BINS = (4096, 65_536)
NOTHING = Loads(np.zeros(0, np.int64), np.zeros(0, np.int64))


def run(bench: Bench) -> None:
    records, keys = bench.pick(500_000, 20_000), bench.pick(5_000_000, 40_000)
    turns = bench.pick(20, 4)
    report = BenchResults("measuring", bench, {"records": records, "keys": keys, "turns": turns})
    lines = []
    for bins in BINS:
        query = Counting(bench.directory / str(bins), bins)
        for start in range(0, keys, records):
            query.epoch(np.arange(start, start + records))
        rng = np.random.default_rng(1)
        found: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(turns):
            found["with"].append(query.epoch(rng.integers(0, keys, records)))
            with patch.object(Loads, "of", lambda *_: NOTHING):
                found["without"].append(query.epoch(rng.integers(0, keys, records)))
        hashes = hash_rows(pa.table({"k": rng.integers(0, keys, records)}))
        counting = [_timed(_count, hashes, bins) for _ in range(turns)]
        history = History(query.checkpoint)
        planning = [_timed(Measured.of, history, "counts", bins) for _ in range(turns)]
        nanoseconds = [seconds / records * 1e9 for seconds in counting]
        ratio = median(found["with"]) / median(found["without"])
        report.add(
            {"bins": bins},
            epoch_seconds={name: spread(seconds) for name, seconds in found.items()},
            ratio=ratio,
            counting_nanoseconds_a_record=spread(nanoseconds),
            manifest_bytes=len(_count(hashes, bins)),
            planning_seconds=spread(planning),
        )
        note(f"  {bins:,} bins")
        ways = [show(spread(found[name])) for name in ("with", "without")]
        times = [show(spread(nanoseconds)), show(spread(planning))]
        lines.append([bins, *ways, f"{ratio:.3f}", *times])
    heads = ["bins", "epoch s", "uncounted", "ratio", "ns a record to count", "s to plan from"]
    show_table(heads, lines)


class Counting:
    """A count by key in one worker, in this process."""

    def __init__(self, checkpoint: Path, bins: int) -> None:
        self.checkpoint = checkpoint
        cache = CacheSpec("cache", 8 << 30, str(checkpoint))
        self._driver = Driver(
            checkpoint, [COUNTS], workers=1, bins=bins, cache=cache, durable=False
        )

    def epoch(self, keys: Any) -> float:
        """Run an epoch over records of these keys; returns the processor seconds of its work."""
        records = pa.table({"k": keys, "n": np.ones(len(keys), np.int64)})
        records = records.append_column(HASH, pa.array(hash_rows(records.select(["k"]))))
        last = self._driver.published.epoch
        epoch = 0 if last is None else last + 1
        intent = self._driver.begin(Epoch(epoch), "bench", str(epoch))
        assert isinstance(intent, Intent)
        work = self._driver.work(intent, "counts")
        began = time.process_time()
        receipt = work.run(WorkerId(0), records.to_batches())
        receipt.to_text()
        taken = time.process_time() - began
        self._driver.commit(intent, {"counts": [receipt]})
        return taken


def _count(hashes: Hashes, bins: int) -> str:
    return Loads.of(hashes, bins).to_text()


def _timed(what: Callable[..., Any], *given: Any) -> float:
    began = time.process_time()
    what(*given)
    return time.process_time() - began
