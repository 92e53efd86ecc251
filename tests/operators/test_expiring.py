"""Keys that expire, where the histories do not go."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import godwit.operators as ops
from godwit.errors import ConfigError
from godwit.operators import AggregateOperator
from godwit.operators.expiring import Expiring
from tests.support.event_records import INPUT, record
from tests.support.operator_simulation import OperatorSimulation


def counting(ttl: str, schema: pa.Schema = INPUT) -> Expiring:
    options: dict[str, Any] = {"time": "at", "delay": "0 s"}
    return Expiring.define(
        AggregateOperator.of("c", "k", {"n": ops.count()}, schema, **options), ttl
    )


def keys(sim: OperatorSimulation, table: str = "value") -> list[str]:
    return sorted(row["k"] for row in sim.state(table))


def test_a_ttl_may_become_shorter(tmp_path: Path) -> None:
    sim = OperatorSimulation(tmp_path, counting("1000 s"), INPUT, workers=2, bins=16)
    sim.feed([record("x", 0)])
    sim.feed([record("y", 100)])
    sim.restart(operator=counting("10 s"))
    sim.feed([record("x", 50)])
    assert keys(sim) == ["y"]
    sim.feed([record("x", 101), record("z", 2000)])
    sim.feed([])
    assert keys(sim) == ["z"]
    assert keys(sim, "_touched") == keys(sim, "_expiry") == ["z"]


def test_keys_that_are_never_null(tmp_path: Path) -> None:
    solid = pa.schema([field.with_nullable(False) for field in INPUT])
    sim = OperatorSimulation(tmp_path, counting("5 s", solid), solid, workers=3, bins=16)
    sim.feed([record("a", 1)])
    sim.feed([record("b", 9)])
    sim.feed([])
    assert keys(sim) == ["b"]


@pytest.mark.parametrize("ttl", ["0 s", "soon"])
def test_a_ttl_that_is_none_is_refused(ttl: str) -> None:
    with pytest.raises(ConfigError):
        counting(ttl)
