"""An operator that is added at a restart may come with state, which is loaded exactly once."""

from itertools import count, product
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest

import godwit.operators as ops
from godwit.driver.driver import Driver
from godwit.errors import FencedError, IncompatibleError
from godwit.faults import Side
from godwit.inspect.audit import verify
from godwit.inspect.overview import Overview
from godwit.inspect.snapshot import Snapshot
from godwit.log import History, Intent, restore
from godwit.log.spark_log import NO_SPARK
from godwit.model.graph import Graph, Parents
from godwit.model.ids import Epoch
from godwit.operators import AggregateOperator
from tests.support.damage import manifest, new_files, rewrite
from tests.support.death import CHANGE, Death, Reaper
from tests.support.simulated import COUNTS, WORDS, drive, loaded, words, worked

SUMS = AggregateOperator.of("sums", "word", {"total": ops.sum("n")}, WORDS)
BOTH = Graph({name: (Parents((), (0,)),) for name in ("counts", "sums")})
SIDES: tuple[Side, ...] = ("before", "after")
GIVEN = pa.table({"word": ["a", "b", "zz"], "total": [5, 6, 7]})


def feed(driver: Driver, epoch: int, *texts: str) -> None:
    """Run an epoch, or find that it has been run."""
    intent = driver.begin(Epoch(epoch), NO_SPARK, str(epoch))
    if isinstance(intent, Intent):
        records = pa.Table.from_pylist(words(*texts), schema=WORDS)
        receipts = {
            name: worked(driver.work(intent, name), routing, records)
            for name, routing in intent.routings.items()
        }
        driver.commit(intent, receipts)


def grow(checkpoint: Path, given: pa.Table | None = GIVEN) -> Driver:
    """Start with an operator more, as `godwit.spark.start` does."""
    driver = drive(checkpoint, COUNTS, SUMS, graph=BOTH)
    published = driver.published.manifest
    assert published is not None
    if given is not None and "sums" not in published.operators:
        intent = driver.addition(["sums"])
        driver.add(intent, {"sums": loaded(driver, intent, SUMS, given)})
    return driver


def sums(checkpoint: Path, operator: str = "sums") -> dict[str, int]:
    snapshot = Snapshot.open(checkpoint, operator)
    return {row["word"]: row["total"] for rows in snapshot.read() for row in rows.to_pylist()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query with one operator, two epochs old."""
    driver = drive(tmp_path / "checkpoint", COUNTS, workers=3, bins=16)
    feed(driver, 0, "a", "c")
    feed(driver, 1, "a")
    return tmp_path / "checkpoint"


def test_the_next_epoch_goes_on_from_it(checkpoint: Path) -> None:
    driver = grow(checkpoint)
    assert sums(checkpoint) == {"a": 5, "b": 6, "zz": 7}
    assert Overview.of(checkpoint).operator("sums").row_versions == 3
    assert verify(checkpoint).findings == []
    feed(driver, 2, "a", "zz", "d")
    assert sums(checkpoint) == {"a": 6, "b": 6, "zz": 9, "d": 1}
    assert verify(checkpoint).findings == []


def test_once_it_is_there_no_start_loads_it_again(checkpoint: Path) -> None:
    """Also one that gives none, or another one, before the next epoch and behind it."""
    grow(checkpoint)
    grow(checkpoint, None)
    feed(grow(checkpoint, GIVEN.slice(2)), 2, "a")
    feed(grow(checkpoint), 3, "b")
    assert sums(checkpoint) == {"a": 6, "b": 7, "zz": 7}


def dies(checkpoint: Path, point: str, side: Side, skip: int) -> bool:
    """Does a driver that starts and runs an epoch die there?"""
    reaper = Reaper()
    reaper.arm(point, side, skip)
    try:
        with reaper.at_work():
            feed(grow(checkpoint), 2, "a", "zz")
    except Death:
        return True
    return False


@pytest.mark.parametrize(
    ("point", "side"),
    [(CHANGE, "before"), *product(("addition", "intent", "manifest"), SIDES)],
)
def test_it_is_loaded_once_wherever_a_driver_dies(
    checkpoint: Path, tmp_path: Path, point: str, side: Side
) -> None:
    """Between a start and the end of the epoch that follows; the next start gives it again."""
    for skip in count(0, 5 if point == CHANGE else 1):
        home = copytree(checkpoint, tmp_path / str(skip))
        if not dies(home, point, side, skip):
            break
        feed(grow(home), 2, "a", "zz")
        assert sums(home) == {"a": 6, "b": 6, "zz": 9}
        assert verify(home).findings == []
    assert skip > 0


def test_a_driver_that_was_overtaken_adds_nothing(checkpoint: Path) -> None:
    driver = drive(checkpoint, COUNTS, SUMS, graph=BOTH)
    intent = driver.addition(["sums"])
    receipts = {"sums": loaded(driver, intent, SUMS, GIVEN)}
    feed(grow(checkpoint, GIVEN.slice(2)), 2, "a")
    with pytest.raises(FencedError):
        driver.add(intent, receipts)
    assert sums(checkpoint) == {"a": 1, "zz": 7}


def test_what_was_added_is_part_of_the_query_at_once(checkpoint: Path) -> None:
    grow(checkpoint)
    with pytest.raises(IncompatibleError, match=r"'sums'.*start with drop=\['sums'\]"):
        drive(checkpoint, COUNTS)
    other = AggregateOperator.of("sums", "word", {"total": ops.max("n")}, WORDS)
    with pytest.raises(IncompatibleError, match=r"'sums'.*total was sum"):
        drive(checkpoint, COUNTS, other, graph=BOTH)
    driver = drive(checkpoint, COUNTS, drop=["sums"])
    feed(driver, 2, "a")
    assert manifest(checkpoint, 2).operators.keys() == {"counts"}
    feed(drive(checkpoint, COUNTS, SUMS, graph=BOTH), 3, "a")
    assert sums(checkpoint) == {"a": 1}


def test_several_may_come_one_after_the_other(checkpoint: Path) -> None:
    grow(checkpoint)
    more = AggregateOperator.of("more", "word", {"total": ops.sum("n")}, WORDS)
    graph = Graph({name: (Parents((), (0,)),) for name in ("counts", "sums", "more")})
    driver = drive(checkpoint, COUNTS, SUMS, more, graph=graph)
    intent = driver.addition(["more"])
    driver.add(intent, {"more": loaded(driver, intent, more, GIVEN.slice(2))})
    feed(drive(checkpoint, COUNTS, SUMS, more, graph=graph), 2, "a")
    assert sums(checkpoint) == {"a": 6, "b": 6, "zz": 7}
    assert sums(checkpoint, operator="more") == {"a": 1, "zz": 7}
    assert verify(checkpoint).findings == []


def test_a_rollback_to_its_epoch_keeps_it(checkpoint: Path) -> None:
    """And one to the epoch before undoes it."""
    feed(grow(checkpoint), 2, "a")
    restore(checkpoint, 1, durable=False)
    feed(grow(checkpoint, None), 2, "b")
    assert sums(checkpoint) == {"a": 5, "b": 7, "zz": 7}
    assert verify(checkpoint).findings == []
    restore(checkpoint, 0, durable=False)
    feed(drive(checkpoint, COUNTS), 1, "a")
    feed(grow(checkpoint, GIVEN.slice(2)), 2, "b")
    assert sums(checkpoint) == {"b": 1, "zz": 7}
    assert verify(checkpoint).findings == []


def test_it_outlives_the_epoch_that_it_was_added_to(checkpoint: Path) -> None:
    driver = grow(checkpoint)
    for epoch in range(2, 24):
        feed(driver, epoch, "a")
    assert History(checkpoint).epochs()[0] == 4
    assert [*(checkpoint / "godwit" / "manifests").glob("*added*")] == []
    assert sums(checkpoint) == {"a": 5 + 22, "b": 6, "zz": 7}
    assert verify(checkpoint).findings == []


def test_the_audit_knows_who_loaded_what(checkpoint: Path) -> None:
    grow(checkpoint)
    (loaded, *_) = (file for file in new_files(checkpoint, 1, "delta") if "/sums/" in file.name)
    rewrite(checkpoint, loaded.name, meta=lambda meta: meta.update(worker=meta["worker"] + 1))
    (finding,) = verify(checkpoint).findings
    assert "at epoch 1, which belonged to worker" in finding.problem
