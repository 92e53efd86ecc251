"""A simulation runs the job that Spark runs, and comes to the same rows and state."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from godwit.model.schema import parse, to_ddl
from godwit.operators import Operator
from godwit.spark.node import defined, walk
from godwit.spark.types import to_arrow
from godwit.testing import Simulation
from tests.support.feed import Feed
from tests.support.jobs import (
    CLICKS,
    SAMPLES,
    VIEWED,
    VIEWS,
    Row,
    Sample,
    count,
    pairs,
    transformed,
)

NOWHERE = gw.console()


def in_order(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def simulated(sample: Sample, **options: Any) -> Simulation:
    return Simulation(sample.job(*sample.inputs.values(), NOWHERE), **options)


def union(inputs: Iterable[str]) -> str:
    """The columns that any of the inputs has."""
    return to_ddl(pa.unify_schemas([parse(ddl) for ddl in inputs]))


def feed(simulation: Simulation, batch: Mapping[str, Any]) -> None:
    if len(batch) == 1:
        simulation.feed(batch["views"])
    else:
        simulation.feed(left=batch["views"], right=batch["clicks"])


@pytest.mark.spark
@pytest.mark.parametrize("kind", SAMPLES)
def test_rows_and_state_are_those_of_spark(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    sample, delivered = SAMPLES[kind], []

    def keep(rows: DataFrame, epoch: int) -> None:
        delivered.extend(rows.toArrow().to_pylist())

    source = Feed(tmp_path / "input", f"input string, {union(sample.inputs.values())}")
    rows = source.stream(spark)  # one source, so that both inputs of an epoch come together
    streams = [
        rows.where(f"input = '{name}'").select(*parse(ddl).names)
        for name, ddl in sample.inputs.items()
    ]
    job = sample.job(*streams, gw.foreach_batch(keep))
    query = job.start(tmp_path / "checkpoint", workers=2, options=gw.Options(bins=64))
    simulation = simulated(sample, spark=spark if sample.needs_spark else None)
    try:
        for batch in sample.batches:
            source.add(
                {"input": name, **record} for name, records in batch.items() for record in records
            )
            query.process_all_available()
            feed(simulation, batch)
            assert query.epoch is not None
            while simulation.committed < query.epoch:
                simulation.feed()  # an epoch for what the records let fire
        for operator, tables in sample.tables.items():
            for table in tables:
                found = gw.read_state(spark, tmp_path / "checkpoint", operator, table=table)
                expected = simulation.state(table, operator=operator)
                assert in_order(found.toArrow().to_pylist()) == in_order(expected)
        if sample.timed:
            query.finish()
            simulation.finish()
    finally:
        query.stop()
    assert in_order(delivered) == in_order(simulation.outputs())
    assert delivered


@pytest.mark.spark
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_stream_over_a_schema_has_the_columns_of_one_over_a_dataframe(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    sample = SAMPLES[kind]
    feeds = [Feed(tmp_path / name, ddl) for name, ddl in sample.inputs.items()]
    ((real, _),) = sample.job(*(feed.stream(spark) for feed in feeds), NOWHERE)._flow.ends
    ((end, _),) = sample.job(*sample.inputs.values(), NOWHERE)._flow.ends
    (dry,) = defined([end], spark)
    assert real.schema is not None
    assert dry.schema is not None
    assert to_arrow(real.schema) == to_arrow(dry.schema)
    described = [
        [
            (node.step.describe(), node.step.input)
            for node in walk(stream)
            if isinstance(node.step, Operator)
        ]
        for stream in (real, dry)
    ]
    assert described[0] == described[1]


@pytest.mark.parametrize(
    "kind", [kind for kind, sample in SAMPLES.items() if not sample.needs_spark]
)
def test_a_job_gives_the_same_whatever_moves_or_dies(kind: str, tmp_path: Path) -> None:
    sample = SAMPLES[kind]
    undisturbed, disturbed = simulated(sample), simulated(sample, checkpoint=tmp_path, workers=1)
    for number, batch in enumerate(sample.batches):
        feed(undisturbed, batch)
        feed(disturbed, batch)
        disturbed.migrate(number + 2, supersede=True)
        disturbed.restart(sample.job(*sample.inputs.values(), NOWHERE))
    if sample.timed:
        undisturbed.finish()
        disturbed.finish()
    assert in_order(disturbed.outputs()) == in_order(undisturbed.outputs())
    assert undisturbed.outputs()


def test_a_job_that_was_described_over_a_schema_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(gw.ConfigError, match="not started: describe it again over a streaming"):
        count(VIEWS, NOWHERE).start(tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_code_for_spark_is_named_if_there_is_no_spark() -> None:
    with pytest.raises(gw.ConfigError, match=r"transform\(doubled\) is DataFrame code.*spark="):
        Simulation(transformed(VIEWS, NOWHERE))


@pytest.mark.spark
def test_a_job_over_a_dataframe_brings_its_spark_along(spark: SparkSession, tmp_path: Path) -> None:
    simulation = Simulation(transformed(Feed(tmp_path, VIEWS).stream(spark), NOWHERE))
    simulation.feed(VIEWED[0]["views"])
    assert {"label": "ANN!", "m": 6} in simulation.outputs()


def test_a_record_of_another_shape_is_refused() -> None:
    simulation = Simulation(count(VIEWS, NOWHERE))
    with pytest.raises(gw.ConfigError, match="no column 'usr'; did you mean 'user'"):
        simulation.feed([{"usr": "ann"}])
    with pytest.raises(gw.ConfigError, match="no column 'price'; it has user, n, at, closes"):
        simulation.feed([{"price": 1}])
    with pytest.raises(gw.ConfigError, match="column 'n' is int64: "):
        simulation.feed([{"n": "many"}])
    with pytest.raises(gw.ConfigError, match="one input"):
        simulation.feed(left=[{"user": "ann"}])
    with pytest.raises(gw.ConfigError, match="two inputs"):
        Simulation(pairs(VIEWS, CLICKS, NOWHERE)).feed([{"user": "ann"}])
    assert simulation.committed == -1


def test_the_name_of_an_operator_is_given_once() -> None:
    counts = gw.stream("word string").aggregate("counts", key="word", n=gw.count())
    later = counts.transform(lambda rows: rows)
    for stream in (counts, later):
        with pytest.raises(gw.ConfigError, match=r"an operator 'counts' already.* differently"):
            stream.aggregate("counts", key="n", m=gw.count())


def test_inputs_without_what_they_share_are_refused() -> None:
    left = gw.stream("user string, at timestamp").aggregate("counts", key="user", n=gw.count())
    with pytest.raises(gw.ConfigError, match="'pairs': column 'at' is not in both inputs"):
        left.binary(
            "pairs",
            gw.stream("user string, at timestamp"),
            key="user",
            function=print,
            state="n long",
            output="n long",
            time="at",
        )


def test_a_changed_job_must_fit_the_state() -> None:
    simulation = Simulation(count(VIEWS, NOWHERE))
    simulation.feed([{"user": "ann", "n": 1}])
    changed = gw.stream(VIEWS).aggregate("counts", key="n", times=gw.count()).to(NOWHERE)
    with pytest.raises(gw.IncompatibleError, match="counts"):
        simulation.restart(changed)


def test_files_of_a_simulation_go_with_it() -> None:
    simulation = Simulation(count(VIEWS, NOWHERE))
    checkpoint = simulation._checkpoint
    assert checkpoint.is_dir()
    del simulation
    assert not checkpoint.exists()
