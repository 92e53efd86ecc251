"""A small query for the tests of the runtime: counts and sums by word, without Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import godwit.operators as ops
from godwit.driver.driver import Driver
from godwit.log import Intent
from godwit.model.hashing import hash_rows
from godwit.model.ids import Epoch, WorkerId
from godwit.model.manifest import Manifest
from godwit.model.receipt import Receipt
from godwit.model.routing import Routing
from godwit.operators import AggregateOperator, Operator
from godwit.operators.initial_state import Load
from godwit.state.cache import CacheSpec
from godwit.state.table import HASH
from godwit.worker.work import Work
from tests.support.operator_simulation import OperatorSimulation

WORDS = pa.schema({"word": pa.string(), "n": pa.int64()})
COUNTS = AggregateOperator.of("counts", "word", {"rows": ops.count(), "total": ops.sum("n")}, WORDS)


def simulate(checkpoint: Path, operator: Operator = COUNTS, **options: Any) -> OperatorSimulation:
    """The query over no data yet, in 16 bins with 2 workers if not said otherwise."""
    schema = options.pop("schema", WORDS)
    return OperatorSimulation(checkpoint, operator, schema, **{"workers": 2, "bins": 16, **options})


def drive(checkpoint: Path, *operators: Operator, **options: Any) -> Driver:
    """A driver whose epochs the test runs itself."""
    cache = CacheSpec("cache", 1 << 20, str(checkpoint))
    return Driver(checkpoint, operators or [COUNTS], cache=cache, durable=False, **options)


def begin(driver: Driver, epoch: int) -> Intent:
    intent = driver.begin(Epoch(epoch), "query", f"offsets {epoch}")
    assert isinstance(intent, Intent)
    return intent


def publish(driver: Driver, epoch: int) -> Manifest:
    """Run an epoch without data."""
    return driver.commit(intent := begin(driver, epoch), idle(driver, intent))


def idle(driver: Driver, intent: Intent) -> dict[str, list[Receipt]]:
    """The receipts of an epoch without data."""
    return {
        name: [
            driver.work(intent, name).run(WorkerId(worker), []) for worker in range(routing.workers)
        ]
        for name, routing in intent.routings.items()
    }


def worked(work: Work, routing: Routing, rows: pa.Table) -> list[Receipt]:
    """The receipts of workers that get their records of these."""
    hashes = hash_rows(rows.select(["word"]))
    rows = rows.append_column(HASH, pa.array(hashes)).sort_by(HASH)
    owners = routing.owners_at(rows[HASH].to_numpy())
    return [
        work.run(WorkerId(worker), rows.filter(pa.array(owners == worker)).to_batches())
        for worker in range(routing.workers)
    ]


def loaded(driver: Driver, intent: Intent, operator: Operator, rows: pa.Table) -> list[Receipt]:
    """The receipts of workers that load the initial state of an operator."""
    work = replace(driver.work(intent, operator.name), operator=Load(operator, "value"))
    return worked(work, intent.routings[operator.name], rows)


def words(*texts: str) -> list[dict[str, Any]]:
    """One record a word, whose number is the length of the word."""
    return [{"word": text, "n": len(text)} for text in texts]


def counts(simulation: OperatorSimulation, epoch: int | None = None) -> dict[str, int]:
    return {row["word"]: row["rows"] for row in simulation.state(epoch=epoch)}


def content(directory: Path) -> dict[str, bytes | None]:
    """Everything below a directory: files with their bytes, directories with None."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in directory.rglob("*")
    }
