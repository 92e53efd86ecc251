"""Joins of random graphs, as `graph_parts` has other operators."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

import godwit as gw
from godwit.operators.definition import INPUT, TIME
from godwit.spark.sinks.sink import Sink
from tests.support.counting_workloads import KEY, Row, key_of, row_of
from tests.support.join_workloads import Bounds, Joins, TimedJoins
from tests.support.kills.graph_parts import LATE, Inputs, as_records, record_of
from tests.support.timed_workloads import DELAY


@dataclass(frozen=True)
class Join:
    """The left calls its number x; the right calls it y, and makes it a text."""

    how: Any
    bounds: Bounds | None = None
    sink_key: tuple[str, ...] = ()

    @property
    def may_keep_late(self) -> bool:
        return False  # they have columns of both sides, which `late_workloads` tests

    def add(self, name: str, *inputs: gw.Stream, late: Sink | None = None) -> gw.Stream:
        left, right = inputs
        left = left.transform(lambda rows: self._columns(rows, "n AS x"))
        right = right.transform(lambda rows: self._columns(rows, "CAST(n AS string) AS y"))
        if self.bounds is None:
            return left.join(name, right, on=KEY, how=self.how)
        low, high = (f"{bound} s" for bound in self.bounds)
        return left.join(
            name, right, on=KEY, how=self.how, within=(low, high), time="at", delay=LATE
        )

    def _columns(self, rows: DataFrame, own: str) -> DataFrame:
        times = [] if self.bounds is None else ["at"]
        return rows.selectExpr(*KEY, *times, own)

    @property
    def delay(self) -> int | None:
        return None if self.bounds is None else DELAY

    @property
    def lag(self) -> int:
        low, high = self.bounds or (0, 0)
        return max(0, high, -low)

    @property
    def records(self) -> tuple[str, ...]:
        if self.bounds is None:
            return ()
        if self.how in ("semi", "anti"):
            return as_records("at", "x")
        return as_records("coalesce(left_at, right_at)", "coalesce(x, 0L)")

    def as_record(self, row: Row) -> Row:
        if self.how in ("semi", "anti"):
            return record_of(row, row["at"], row["x"])
        x = row["x"]
        return record_of(row, row["left_at"] or row["right_at"], 0 if x is None else x)

    def model(self) -> Any:
        if self.bounds is None:
            return Joins(self.how)
        return TimedJoins(self.how, self.bounds)

    def run(self, model: Any, inputs: Inputs, until: datetime | None) -> list[Row]:
        both = list(self._side_by_side(inputs))
        found: list[Row] = model.feed(both) if self.bounds is None else model.run(both, until)
        return found

    def _side_by_side(self, inputs: Inputs) -> Iterator[Row]:
        for side, rows in enumerate(inputs):
            for row in rows:
                x, y = (row["n"], None) if side == 0 else (None, str(row["n"]))
                times = {} if self.bounds is None else {TIME: row["at"]}
                yield row_of(key_of(row), **{INPUT: side, **times, "left_x": x, "right_y": y})


JOINS: Mapping[str, Join] = {
    "join": Join("inner"),
    "join_inner": Join("inner", (-1, 1)),
    "join_left": Join("left", (0, 2)),
    "join_right": Join("right", (-2, 0)),
    "join_full": Join("full", (-2, 1)),
    "join_semi": Join("semi", (0, 2)),
    "join_anti": Join("anti", (-1, 0)),
}
