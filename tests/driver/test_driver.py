"""The driver: epochs that are decided, replayed, adopted or refused, and functions that fail."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from godwit import faults
from godwit.driver import garbage
from godwit.driver import merges as merging
from godwit.driver.driver import Driver
from godwit.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    IncompatibleError,
    OperatorError,
)
from godwit.log import History
from godwit.log.intent import Intent
from godwit.log.layout import manifest_name
from godwit.log.records import encode
from godwit.migration.strategies import all_at_once
from godwit.model.hashing import hash_rows
from godwit.model.ids import Epoch, WorkerId
from godwit.model.manifest import Manifest
from godwit.model.routing import Routing, Update
from godwit.operators import AggregateOperator, StateMachine, count
from tests.support.death import death_at
from tests.support.log_samples import offsets_file, spark_log
from tests.support.simulated import (
    COUNTS,
    WORDS,
    begin,
    content,
    counts,
    drive,
    idle,
    publish,
    simulate,
    words,
)

# -- epochs ----------------------------------------------------------------------------------------


def test_a_replay_gets_the_intent_that_was_decided(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=16)
    publish(driver, 0)
    driver.requests.migrate("counts", Routing.even(16, 3), strategy=all_at_once())
    decided = begin(driver, 1)
    driver.requests.schedule("counts", [Update(2, 0, 2)])
    assert begin(driver, 1) == decided
    again = drive(tmp_path)
    assert begin(again, 1) == decided
    again.commit(decided, idle(again, decided))
    assert begin(again, 2).routings["counts"].owners[0] == 2


def test_what_waits_after_an_epoch_was_planned_is_no_silence(tmp_path: Path) -> None:
    """What comes then is in the next one. A replay knows no other moment, either."""
    spark = spark_log(tmp_path, offsets=0, commits=-1)
    (spark / "offsets" / "0").write_text(offsets_file(0, time=1500))
    for _ in range(2):
        driver = drive(tmp_path)
        decided = driver.begin_batch(Epoch(0), [], {}, None)
    assert isinstance(decided, Intent)
    driver.commit(decided, idle(driver, decided))
    assert driver.published.time.begun == 1.5


@pytest.mark.parametrize(
    ("workers", "bins"), [(1, None), (3, None), (None, 8), (None, 64), (5, 32)]
)
def test_what_a_restart_changes_holds_from_the_epoch_after_a_replay(
    tmp_path: Path, workers: int | None, bins: int | None
) -> None:
    publish(drive(tmp_path, workers=2, bins=16), 0)
    decided = begin(drive(tmp_path), 1)
    driver = drive(tmp_path, workers=workers, bins=bins)
    assert begin(driver, 1) == decided
    driver.commit(decided, idle(driver, decided))
    assert begin(driver, 2).routings["counts"] == Routing.even(bins or 16, workers or 2)


def test_a_published_epoch_is_not_run_again(tmp_path: Path) -> None:
    published = publish(drive(tmp_path, workers=2, bins=16), 0)
    assert drive(tmp_path).begin(Epoch(0), "query", "offsets 0") == published


@pytest.mark.parametrize(
    ("epoch", "offsets", "message"),
    [
        (1, "other", "replays epoch 1 with other offsets"),
        (0, "offsets 0", "replays epoch 0"),
        (3, "offsets 3", "runs epoch 3, but the newest published epoch is 1"),
    ],
)
def test_an_epoch_of_another_history_is_refused(
    tmp_path: Path, epoch: int, offsets: str, message: str
) -> None:
    driver = drive(tmp_path, workers=2, bins=16)
    publish(driver, 0)
    publish(driver, 1)
    before = content(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        driver.begin(Epoch(epoch), "query", offsets)
    assert content(tmp_path) == before


def test_a_begun_epoch_with_other_offsets_is_refused(tmp_path: Path) -> None:
    begin(drive(tmp_path, workers=2, bins=16), 0)
    with pytest.raises(CheckpointError, match="epoch 0 was run before"):
        drive(tmp_path).begin(Epoch(0), "query", "other")


def test_a_manifest_that_is_there_already_counts(tmp_path: Path) -> None:
    """The driver before published in the last moment; its receipts are what happened."""
    old = drive(tmp_path, workers=2, bins=16)
    intent = begin(old, 0)
    theirs = old.work(intent, "counts").run(WorkerId(0), _batch([5]))
    both = {"counts": [theirs, *idle(old, intent)["counts"][1:]]}
    new = drive(tmp_path)
    assert begin(new, 0) == intent

    def publish_late(point: str, side: faults.Side, epoch: int) -> None:
        if (point, side) == ("manifest", "before"):
            data = encode("manifest", _manifest_of(old, intent, both).to_json())
            (tmp_path / "godwit" / manifest_name(0)).write_bytes(data)

    with patch.object(faults, "handler", publish_late):
        adopted = new.commit(intent, idle(new, intent))
    assert adopted.generation == 1
    assert [r.rows for r in adopted.receipts["counts"]] == [1, 0]
    after = begin(new, 1)
    found = new.work(after, "counts").trees["value"].files
    assert list(found) == [file.ref.name for file in theirs.deltas["value"]]


def _batch(hashes: list[int]) -> list[pa.RecordBatch]:
    size = len(hashes)
    columns = {"word": ["x"] * size, "n": pa.array([1] * size, pa.int64())}
    return [pa.record_batch({**columns, "_hash": pa.array(hashes, pa.uint64())})]


def _manifest_of(driver: Driver, intent: Any, receipts: Any) -> Manifest:
    """What `driver` would publish, without publishing it."""
    grown = merging.grown(driver.published.trees["counts"], intent, "counts", receipts["counts"])
    return Manifest(
        epoch=intent.epoch,
        generation=1,
        query=intent.query,
        offsets=intent.offsets,
        operators={"counts": COUNTS.describe()},
        trees={"counts": {table: tree.pack() for table, tree in grown.items()}},
        outputs={"counts": ()},
        receipts={"counts": tuple(receipt.statistics() for receipt in receipts["counts"])},
    )


def test_the_later_of_two_drivers_wins_and_the_earlier_damages_nothing(tmp_path: Path) -> None:
    old = drive(tmp_path, workers=2, bins=16)
    intent = begin(old, 0)
    receipts = idle(old, intent)
    new = drive(tmp_path)
    before = content(tmp_path)
    with pytest.raises(FencedError):
        old.commit(intent, receipts)
    with pytest.raises(FencedError):
        old.begin(Epoch(0), "query", "offsets 0")
    assert content(tmp_path) == before
    publish(new, 0)


@pytest.mark.parametrize("workers", [[0], [0, 0, 1], [0, 1, 2], []])
def test_an_epoch_needs_exactly_one_receipt_a_worker(tmp_path: Path, workers: list[int]) -> None:
    driver = drive(tmp_path, workers=2, bins=16)
    intent = begin(driver, 0)
    work = driver.work(intent, "counts")
    with pytest.raises(CheckpointError, match="instead of 0 to 1; not published"):
        driver.commit(intent, {"counts": [work.run(WorkerId(worker), []) for worker in workers]})
    assert History(tmp_path).epochs() == []


def test_what_losing_attempts_leave_behind_is_swept_up(tmp_path: Path) -> None:
    sim = simulate(tmp_path)
    with patch.object(garbage, "SWEEP_EPOCHS", 3):
        for epoch in range(4):
            for name in (f"e{epoch}-w0-delta-lost.arrow", f".{epoch}.tmp"):
                (tmp_path / "godwit" / "state" / "counts" / "value" / name).touch()
            (tmp_path / "godwit" / "outputs" / "counts" / "e9-w0-output-later.parquet").touch()
            sim.feed(words("a"))
    left = {path.name for path in (tmp_path / "godwit").rglob("*lost*")}
    assert left == set()
    assert [path.name for path in (tmp_path / "godwit").rglob("*later*")]
    assert counts(sim) == {"a": 4}


def test_waiting_for_an_epoch(tmp_path: Path) -> None:
    driver = drive(tmp_path, workers=2, bins=16)
    assert not driver.published.wait(0, timeout=0)
    publish(driver, 0)
    assert driver.published.wait(0)
    driver.monitor.close()
    assert not driver.published.wait(1)


# -- functions that fail, or do not do the same twice ----------------------------------------------


def _fails_at_bad(key: str, value: Any, state: Any) -> None:
    if key == "bad":
        raise ValueError(f"no {key} words")
    state.n = (state.n or 0) + value.n


def _harmless(key: str, value: Any, state: Any) -> None:
    state.n = (state.n or 0) + value.n


def test_nothing_is_kept_of_an_epoch_whose_function_raised(tmp_path: Path) -> None:
    machine = StateMachine.of("sums", "word", _fails_at_bad, "n long", "word string", WORDS)
    sim = simulate(tmp_path, machine)
    sim.feed(words("a", "b"))
    with pytest.raises(OperatorError, match="ValueError: no bad words") as raised:
        sim.feed(words("a", "bad", "c"))
    error = raised.value
    assert (error.operator, error.key, error.epoch) == ("sums", "'bad'", 1)
    assert error.worker == sim.driver.routing("sums").owners[_bin_of("bad")]
    assert "_fails_at_bad" in error.cause
    assert History(tmp_path).epochs() == [0]
    assert {row["word"]: row["n"] for row in sim.state()} == {"a": 1, "b": 1}
    fixed = StateMachine.of("sums", "word", _harmless, "n long", "word string", WORDS)
    sim.restart(operator=fixed)
    sim.resume()
    assert {row["word"]: row["n"] for row in sim.state()} == {"a": 2, "b": 1, "bad": 3, "c": 1}


def _bin_of(word: str) -> int:
    return int(hash_rows(pa.table({"word": [word]}))[0] >> np.uint64(60))


def test_outputs_that_were_published_are_delivered_even_if_the_function_varies(
    tmp_path: Path,
) -> None:
    calls: list[str] = []

    def numbered(key: str, value: Any, state: Any) -> list[tuple[str, int]]:
        calls.append(key)
        state.call = len(calls)
        return [(key, len(calls))]

    output = "word string, call long"
    sim = simulate(tmp_path, StateMachine.of("calls", "word", numbered, "call long", output, WORDS))
    with death_at("manifest", "after"):
        sim.feed(words("a"))
    assert sim.sink == {}
    sim.restart()
    sim.resume()
    assert (calls, sim.outputs()) == (["a"], [{"word": "a", "call": 1}])
    with death_at("manifest", "before"):
        sim.feed(words("a"))
    sim.restart()
    sim.resume()
    assert sim.sink[1] == [{"word": "a", "call": 3}]
    assert [row["call"] for row in sim.state()] == [3]


# -- what cannot work ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": 0}, "retention must be at least one epoch, not 0"),
        ({"workers": 0}, "workers must be from 1"),
        ({"bins": 12}, "bins must be a power of two"),
        ({"bins": 1 << 21}, "bins must be a power of two"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        drive(tmp_path / "checkpoint", **options)
    assert content(tmp_path) == {}


def test_two_operators_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two operators have the same name"):
        drive(tmp_path / "checkpoint", COUNTS, COUNTS)
    assert content(tmp_path) == {}


def test_an_epoch_in_flight_binds_the_operators_by_name(tmp_path: Path) -> None:
    begin(drive(tmp_path, workers=2, bins=16), 0)
    before = content(tmp_path)
    other = AggregateOperator.of("others", "word", {"rows": count()}, WORDS)
    with pytest.raises(IncompatibleError, match=r"'counts'.*the query no longer has it"):
        drive(tmp_path, other)
    assert content(tmp_path) == before


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_a_restart_may_have_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("a", "b", "c", "d", "e"))
    sim.restart(workers=workers)
    sim.feed(words("a", "f"))
    assert sim.driver.routing("counts").workers == workers
    assert counts(sim) == {"a": 2, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}
