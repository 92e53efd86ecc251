"""A workload runs live, moves on the way, and its latencies are those of an open loop."""

import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from godwit.cli import main
from godwit.errors import ConfigError
from godwit.workloads.catalog import WORKLOADS, workload
from godwit.workloads.rate import SECOND, Rate
from godwit.workloads.running import Epoch, Migration, Move, Report, Run, Runner


def run_of(name: str = "key-count", **options: object) -> Run:
    given = {"rate": Rate.parse("1k"), "workers": 2, "seconds": 10.0, "warm_up": 2.0} | options
    return Run(workload(name), **given)  # type: ignore[arg-type]


def test_latency_is_counted_from_the_intended_time() -> None:
    """Two epochs of 1,000 events each; the second is 2 s late, and all behind it wait with it."""
    report = Report(run_of(seconds=3.0, warm_up=0.0))
    report.epochs = [Epoch(0, 0, 1000, 1.5, {}, 0), Epoch(1, 1000, 2000, 4.0, {"ids": 3}, 10)]
    report.migrations = [Migration("ids", 3, "paced", 2.0, 4.0, "done")]
    assert report.histogram().greatest == 3 * SECOND
    found = report.summary()
    assert found["steady"]["max"] == pytest.approx(1.5)
    assert found["moving"]["max"] == pytest.approx(3.0)
    assert found["moving"]["p50"] == pytest.approx(2.5, rel=1 / 16)
    slots = report.timeline()
    assert [slot for slot, _, _ in slots] == np.arange(0, 2, 0.25).tolist()
    assert slots[4][2] == 3 * SECOND


def test_the_warm_up_does_not_count() -> None:
    report = Report(run_of(seconds=3.0, warm_up=1.0))
    report.epochs = [Epoch(0, 0, 500, 9.0, {}, 0), Epoch(1, 500, 1500, 9.0, {}, 0)]
    report.epochs += [Epoch(2, 1500, 2000, 2.0, {}, 0)]
    assert report.histogram().total == 500


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_workload_moves_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    said: list[str] = []
    wanted = run_of(seconds=6.0, warm_up=0.0, moves=(Move(2.0, 4, "all-at-once"),))
    report = Runner(spark, wanted, tmp_path, said.append).run()
    assert report.epochs[-1].last == wanted.rate.until(6 * SECOND)
    (migration,) = report.migrations
    assert migration.outcome == "done"
    assert migration.ended is not None
    assert 2.0 <= migration.asked <= migration.ended
    assert sum(epoch.moved.get("ids", 0) for epoch in report.epochs) > 0
    assert report.histogram().total == report.epochs[-1].last
    assert any("to 4 workers, all-at-once" in line for line in said)
    assert json.loads(json.dumps(report.to_json()))["workload"] == "key-count"
    rows = spark.read.parquet(str(tmp_path / "output")).groupBy("id").max("n").collect()
    assert sum(row[1] for row in rows) == report.epochs[-1].last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a workload"),
        (["q99"], "there is no workload 'q99'"),
        (["q5", "--rate", "fast"], "'fast' is no rate"),
        (["q5", "--for", "soon"], "'soon' is no duration"),
        (["q5", "--for", "5 s"], "leaves nothing to measure"),
        (["q5", "--workers", "0"], "workers must be"),
        (["q5", "--migrate", "to 4"], "'to 4' is no move"),
        (["q5", "--migrate", "at 90s to 4 workers"], "after the end of the run"),
        (["q5", "--migrate", "at 20s to 4 workers with luck"], "luck"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_all_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--list"]) == 0
    told = capsys.readouterr().out
    for name, one in WORKLOADS.items():
        assert name in told
        assert one.about in told


def test_a_move_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no move"):
        Move.parse("to 4 workers at 20s")
