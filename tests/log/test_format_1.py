"""A checkpoint of format 1, written before the log was decoded to values, means what it did.

`data/format-1.zip` was written by commit c6260ba: 14 epochs of `records` by three workers on three
executors with a replica each, the 15th decided and not published. In between bins moved, by data
and by a migration that another superseded; requests were refused, a worker was handed over, and
executor 2 is drained.
"""

import zipfile
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import godwit.operators as ops
from godwit.driver.driver import Driver
from godwit.inspect.audit import verify
from godwit.inspect.overview import Overview
from godwit.log import History
from godwit.log.layout import intent_name, manifest_name
from godwit.log.records import encode
from godwit.migration.migration import MigrationPhase
from godwit.model.requests import MigrateRequest
from godwit.model.routing import Routing
from godwit.model.tree import Merge
from godwit.operators import AggregateOperator
from godwit.operators.windowed import Windowed
from godwit.operators.windows import END, START, tumbling
from godwit.placement.handover import HandoverStage
from tests.support.operator_simulation import OperatorSimulation

WRITTEN = Path(__file__).parent / "data" / "format-1.zip"
EPOCHS = range(11, 14)  # that are retained
DECIDED = 14
WORDS = "acef"
EXECUTORS = {"0": "one", "1": "two", "2": "three"}

MOMENT = pa.timestamp("us", tz="UTC")
RECORDS = pa.schema(
    {"word": pa.string(), "n": pa.int64(), "at": MOMENT, START: MOMENT, END: MOMENT}
)
WINDOWS = Windowed.define(
    "windows",
    "word",
    {"rows": ops.count(), "total": ops.sum("n")},
    RECORDS,
    tumbling("2 s"),
    time="at",
    delay="1 s",
)
COUNTS = AggregateOperator.of(
    "counts", "word", {"windows": ops.count(), "total": ops.sum("total")}, WINDOWS.output
)


def at(second: int) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def records(epoch: int) -> list[dict[str, Any]]:
    """A record for each word at second `epoch`, in windows of two seconds."""
    start = epoch - epoch % 2
    return [
        {"word": word, "n": epoch + i, "at": at(epoch), START: at(start), END: at(start + 2)}
        for i, word in enumerate(WORDS)
    ]


class Continued(OperatorSimulation):
    """The query that wrote the checkpoint, started again; `records` are there up to an epoch."""

    def __init__(self, checkpoint: Path, until: int) -> None:
        super().__init__(checkpoint, [WINDOWS, COUNTS], RECORDS, workers=2)
        batches = (records(epoch) for epoch in range(until + 1))
        self._batches = [(pa.Table.from_pylist(rows, schema=RECORDS),) for rows in batches]
        self._committed = DECIDED - 1
        self.executors = dict(EXECUTORS)

    def _open(self, workers: int | None, bins: int | None, drop: Collection[str] = ()) -> Driver:
        return super()._open(workers, None, drop)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    with zipfile.ZipFile(WRITTEN) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture
def history(checkpoint: Path) -> History:
    return History.inspect(checkpoint)


def test_an_intent_means_what_it_did(history: History) -> None:
    intent = history.intent(DECIDED)
    assert intent is not None
    assert (intent.query, intent.offsets, intent.generation) == ("simulation", "14", 1)
    assert (intent.taken, intent.asked_workers, intent.backlog) == (7, 2, None)
    assert intent.sources == ("counts:w1", "nobody:w2")
    assert intent.refused.keys() == {4, 5}
    assert intent.refused[4].startswith("unknown operator 'nobody'")
    assert intent.watermarks == {"windows": round(at(12).timestamp() * 1e6)}
    assert {name: routing.workers for name, routing in intent.routings.items()} == {
        "windows": 3,
        "counts": 3,
    }
    assert intent.routings["windows"] == Routing.even(16, 3)
    merges = [merge for e in EPOCHS for merge in _merges(history, e)]
    assert merges
    assert all(isinstance(merge, Merge) and merge.layers > 1 for merge in merges)


def _merges(history: History, epoch: int) -> Iterator[Merge]:
    intent = history.intent(epoch)
    assert intent is not None
    assert {name: set(tables) for name, tables in intent.merges.items()} == {
        "windows": {"value", "_closing"},
        "counts": {"value"},
    }
    for tables in intent.merges.values():
        for merges in tables.values():
            yield from merges


def test_migrations_mean_what_they_did(history: History) -> None:
    intent = history.intent(DECIDED)
    assert intent is not None
    assert intent.migrations.keys() == {"windows", "counts"}
    assert intent.migrations["windows"].open is None
    assert [
        (ended.id, ended.phase, ended.epoch, ended.workers)
        for ended in intent.migrations["counts"].past
    ] == [(1, MigrationPhase.DONE, 2, (2, 3)), (6, MigrationPhase.SUPERSEDED, 11, (3, 2))]
    opened = intent.migrations["counts"].open
    assert opened is not None
    assert (opened.id, opened.phase, opened.stepped) == (7, MigrationPhase.MOVING, DECIDED)
    request = history.requests.request(opened.id)
    assert isinstance(request, MigrateRequest)
    migration = opened.resume(request, 16)
    assert migration.rebased
    assert migration.origin == opened.origin != request.origin == Routing.even(16, 3)


def test_a_placement_means_what_it_did(history: History) -> None:
    intent = history.intent(DECIDED)
    assert intent is not None
    assert intent.placement is not None
    placement, handovers = intent.placement.placement, intent.placement.handovers
    assert placement.executors == ("0", "1", "2")
    assert placement.homes == ("1", "1", "0")
    assert placement.replicas == (("0",), ("0",), ("1",))
    assert intent.placement.drained == ("2",)
    assert [(one.worker, one.target, one.stage, one.automatic) for one in handovers] == [
        (2, "0", HandoverStage.SWITCHED, True),
        (0, "1", HandoverStage.DONE, False),
    ]


def test_a_manifest_means_what_it_did(history: History) -> None:
    assert history.epochs() == list(EPOCHS)
    manifest = history.last()
    assert manifest is not None
    assert manifest.operators == {"windows": WINDOWS.describe(), "counts": COUNTS.describe()}
    assert manifest.clocks == {"windows": (round(at(13).timestamp() * 1e6),)}
    assert manifest.executors == {0: "1", 1: "1", 2: "2"}
    assert sum(receipt.records for receipt in manifest.receipts["windows"]) == len(WORDS)
    assert sum(r.records_by_bin(16).sum() for r in manifest.receipts["windows"]) == len(WORDS)
    assert all(receipt.seconds for group in manifest.receipts.values() for receipt in group)
    outputs = [manifest.outputs["windows"], manifest.outputs["counts"]]
    assert outputs == [(), ()]  # no window closes at second 11, of which it knows
    for tables in manifest.trees.values():
        for packed in tables.values():
            assert packed.unpack().pack() == packed


def test_every_record_is_encoded_to_the_bytes_that_it_had(history: History) -> None:
    for epoch in EPOCHS:
        manifest = history.manifest(epoch)
        assert manifest is not None
        data = encode("manifest", manifest.to_json())
        assert data == history.files.read(manifest_name(epoch))
    assert history.intents() == [2, *EPOCHS, DECIDED]
    for epoch in history.intents():
        intent = history.intent(epoch)
        assert intent is not None
        since = {name: e for name, e in history.since(epoch).items() if e != epoch}
        assert encode("intent", intent.to_json(since)) == history.files.read(intent_name(epoch))


def test_the_checkpoint_is_sound_and_can_be_looked_at(checkpoint: Path) -> None:
    assert verify(checkpoint).findings == []
    overview = Overview.of(checkpoint)
    assert (overview.epoch, overview.begun) == (DECIDED - 1, DECIDED)
    migration = overview.operator("counts").migration
    assert migration is not None
    assert (migration.id, migration.outcome) == (7, "moving")
    assert [one.drained for one in overview.executors] == [False, False, True]


def test_the_query_goes_on_from_it_exactly(checkpoint: Path, history: History) -> None:
    before = history.intent(DECIDED)
    last = DECIDED + 8
    sim = Continued(checkpoint, last)
    sim.resume()
    sim.finish()
    assert history.intent(DECIDED) == before  # which the replay obeyed
    assert verify(checkpoint).findings == []
    totals = {(row["word"], row["windows"], row["total"]) for row in sim.state(operator="counts")}
    assert totals == {
        (word, (last + 2) // 2, sum(epoch + i for epoch in range(last + 1)))
        for i, word in enumerate(WORDS)
    }
    assert sim.state(operator="windows") == []
    ended = sim.driver.timelines["counts"].past[-1]
    assert (ended.id, ended.phase) == (7, MigrationPhase.DONE)
