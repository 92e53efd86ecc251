"""Tasks that fail, die, hang, run twice or are cancelled leave nothing but exact results."""

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import godwit as gw
from godwit.inspect.snapshot import Snapshot
from godwit.log.history import History
from godwit.log.spark_log import newest_commit, newest_offsets
from godwit.model.routing import SEGMENTS
from godwit.storage.local import LocalStore
from tests.support.feed import Feed
from tests.support.kills import bank
from tests.support.kills.functions import STRUCK, Blocking, Dying, Keeping, Raising
from tests.support.kills.running import Launch
from tests.support.kills.truth import check, first_seen

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

STRUCK_EPOCH = 1
LAST = 2  # epoch


@pytest.fixture
def home(tmp_path: Path) -> Path:
    bank.write_input(tmp_path, range(LAST + 1))
    return tmp_path


def start(spark: SparkSession, home: Path, job: gw.Job | None = None) -> gw.Query:
    job = job or bank.job(spark, home)
    return job.start(home / "checkpoint", workers=2, trigger=gw.available_now())


def worker_of_struck_branch(home: Path) -> int:
    snapshot = Snapshot.open(home / "checkpoint", "statements", table="profile")
    rows = [row for number in range(SEGMENTS) for row in snapshot.segment(number).to_pylist()]
    (worker,) = [row["_worker"] for row in rows if row["branch"] == STRUCK]
    assert isinstance(worker, int)
    return worker


def assert_epoch_began_and_left_nothing(home: Path) -> None:
    assert History(home / "checkpoint").intent(STRUCK_EPOCH) is not None
    assert newest_offsets(LocalStore(home / "checkpoint" / "spark")) == STRUCK_EPOCH
    assert newest_commit(LocalStore(home / "checkpoint" / "spark")) == STRUCK_EPOCH - 1
    check(home, published=STRUCK_EPOCH - 1, delivered=STRUCK_EPOCH - 1)


def test_an_exception_fails_the_query_and_nothing_of_its_epoch_is_kept(
    spark: SparkSession, home: Path
) -> None:
    account = min(a for a, _ in bank.payments(STRUCK_EPOCH) if a.startswith(STRUCK))
    query = start(spark, home, bank.job(spark, home, Raising(home, first_seen(STRUCK_EPOCH))))
    for told in (query.await_termination, query.process_all_available):
        with pytest.raises(gw.OperatorError) as failure:
            told()
        error = failure.value
        assert (error.operator, error.key) == ("statements", repr(STRUCK))
        assert (error.epoch, error.worker) == (STRUCK_EPOCH, worker_of_struck_branch(home))
        assert "in strike" in error.cause
        assert error.cause.strip().endswith(f"LookupError: no such account: {account}")
        for part in ("'statements'", repr(STRUCK), f"epoch {STRUCK_EPOCH}", error.cause):
            assert part in str(error)
    assert not query.is_active
    assert_epoch_began_and_left_nothing(home)

    start(spark, home).await_termination()
    check(home, published=LAST, delivered=LAST)


def test_a_worker_that_dies_in_the_function_is_replaced(spark: SparkSession, home: Path) -> None:
    dying = Dying(home, first_seen(STRUCK_EPOCH))
    start(spark, home, bank.job(spark, home, dying)).await_termination()
    assert (home / "died").exists()
    check(home, published=LAST, delivered=LAST)


def test_input_that_varies_is_in_outputs_and_state_as_one_attempt_had_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each record draws a lot when it is read; the process that dies had written its files."""
    feed = Feed(tmp_path / "input", "word string")
    for _ in range(LAST + 1):
        feed.add({"word": word} for word in "abcdefab")
    job = (
        gw.stream(feed.stream(spark).withColumn("lot", sf.expr("uuid()")))
        .state_machine(
            "lots",
            key="word",
            function=Keeping(tmp_path, STRUCK_EPOCH),
            state={"lots": gw.List("lot string")},
            output="word string, lot string",
        )
        .to(gw.files(tmp_path / "output"))
    )
    start(spark, tmp_path, job).await_termination()
    assert (tmp_path / "died").exists()
    lots = (tmp_path / "checkpoint" / "godwit" / "outputs" / "lots").glob(f"e{STRUCK_EPOCH}-*")
    assert len(list(lots)) == 3  # of two workers, of which one came twice
    delivered = spark.read.parquet(str(tmp_path / "output")).collect()
    kept = gw.read_state(spark, tmp_path / "checkpoint", "lots").collect()
    assert len({row.lot for row in kept}) == 8 * (LAST + 1)
    assert Counter((row.word, row.lot) for row in delivered) == Counter(
        (row.word, row.lot) for row in kept
    )


def test_an_epoch_that_is_stopped_is_run_again(spark: SparkSession, home: Path) -> None:
    blocking = Blocking(home, first_seen(STRUCK_EPOCH))
    query = start(spark, home, bank.job(spark, home, blocking))
    while not (home / "blocked").exists():
        assert query.is_active
        time.sleep(0.05)
    query.stop()
    assert query.await_termination()
    assert not query.is_active
    assert query.spark_query.exception() is None
    assert_epoch_began_and_left_nothing(home)

    start(spark, home).await_termination()
    check(home, published=LAST, delivered=LAST)


def test_of_two_attempts_that_write_their_files_one_counts(launch: Launch, home: Path) -> None:
    with launch(home) as application:
        application.start(
            overtaken_at=first_seen(STRUCK_EPOCH),
            hosts=["127.0.0.1", "127.0.0.2"],
            conf={"spark.speculation": "true", "spark.speculation.quantile": "0.5"},
        )
        assert application.wait() == 0
    assert {(home / f"attempt-{attempt}").exists() for attempt in (0, 1)} == {True}
    deltas = (home / "checkpoint" / "godwit" / "state" / "statements" / "profile").glob(
        f"e{STRUCK_EPOCH}-w{worker_of_struck_branch(home)}-delta-*"
    )
    assert len(list(deltas)) == 2
    check(home, published=LAST, delivered=LAST)
