"""Joins under test, with a model that compares every left row with every right one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, product
from typing import Any

import pyarrow as pa

from godwit.operators.definition import INPUT, TIME
from godwit.operators.join import KINDS, LEAVING, JoinOperator
from godwit.operators.joining import FROM_LEFT, How, Joining
from tests.support.counting_workloads import (
    KEY,
    KEY_FIELDS,
    Key,
    Row,
    Workload,
    combine,
    in_total_order,
    key_of,
    row_of,
)
from tests.support.timed_workloads import DELAY, MOMENT, Timed, at

Bounds = tuple[int, int]  # in seconds

_OWN = [("left_x", pa.int64()), ("right_y", pa.string())]
SIDES = pa.schema([(INPUT, pa.int8()), *KEY_FIELDS, (TIME, MOMENT), *_OWN])
UNTIMED = pa.schema([(INPUT, pa.int8()), *KEY_FIELDS, *_OWN])
COLUMNS = ("left_x", "right_y")


@dataclass(slots=True)
class _Entry:
    """A record that has come, in whichever epoch."""

    side: int
    key: Key
    at: datetime | None
    value: Any
    is_new: bool = True
    matched: bool = False
    stored: bool = False
    over: bool = False  # it can match no more

    def show(self, bounds: Bounds | None) -> Row:
        """What comes out of it; both inputs call their time `at`."""
        own = {COLUMNS[self.side].partition("_")[2]: self.value}
        return own if bounds is None else {f"{KINDS[self.side]}_at": self.at, **own}


class Joins:
    """Forgets nothing: which rows leave the state changes what it says of the state only."""

    def __init__(self, how: How, bounds: Bounds | None = None) -> None:
        self._how, self._bounds = how, bounds
        self._entries: list[_Entry] = []

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        return list(self.epoch(rows, None))

    def epoch(self, rows: Sequence[Row], until: datetime | None) -> Iterator[Row]:
        for one in self._entries:
            one.is_new = False
        for row in in_total_order(rows, *([TIME] if self._bounds else []), INPUT, *COLUMNS):
            side = row[INPUT]
            self._entries.append(_Entry(side, key_of(row), row.get(TIME), row[COLUMNS[side]]))
        lefts, rights = ([one for one in self._entries if one.side == side] for side in (0, 1))
        for left, right in product(lefts, rights):
            if (left.is_new or right.is_new) and self._match(left, right):
                if self._how == "semi" and not left.matched:
                    yield row_of(left.key, **self._of_left(left))
                elif self._how not in FROM_LEFT:
                    both = left.show(self._bounds) | right.show(self._bounds)
                    yield row_of(left.key, **both)
                left.matched = right.matched = True
        for one in self._entries:
            if not one.over and self._is_over(one, until):
                one.over = True
                if self._is_kept(one.side) and not one.matched:
                    yield row_of(one.key, **self._alone(one))
            if one.is_new and not one.over:
                one.stored = not (self._is_done(one))

    def state(self) -> dict[str, list[Row]]:
        tables: dict[str, list[Row]] = {}
        for side, kind in enumerate(KINDS):
            stored = [one for one in self._entries if one.side == side and one.stored]
            waiting = [one for one in stored if not one.over]
            there = [one for one in waiting if not self._is_done(one)]
            if self._how == "semi" and self._bounds is None and side:
                there = list({one.key: one for one in there}.values())
            if self._bounds is not None:
                tables[LEAVING[side]] = _placed(waiting, lambda one: {})
            name = COLUMNS[side].partition("_")[2]
            shows = side == 0 or self._how not in FROM_LEFT
            tables[kind] = _placed(
                there, lambda one, name=name, shows=shows: {name: one.value} if shows else {}
            )
        return tables

    def _match(self, left: _Entry, right: _Entry) -> bool:
        if left.key != right.key or None in left.key:
            return False
        if self._bounds is None:
            return True
        assert left.at is not None
        assert right.at is not None
        apart = (right.at - left.at).total_seconds()
        return self._bounds[0] <= apart <= self._bounds[1]

    def _is_over(self, one: _Entry, until: datetime | None) -> bool:
        if None in one.key:
            return True
        if self._bounds is None or until is None:
            return False
        assert one.at is not None
        stay = self._bounds[1] if one.side == 0 else -self._bounds[0]
        return one.at + timedelta(seconds=stay) < until

    def _is_kept(self, side: int) -> bool:
        return self._how in (("left", "full", "anti"), ("right", "full"))[side]

    def _is_done(self, one: _Entry) -> bool:
        """Has a row of the left said all that it can say?"""
        return self._how in FROM_LEFT and one.side == 0 and one.matched

    def _of_left(self, left: _Entry) -> Row:
        return {"x": left.value} if self._bounds is None else {"at": left.at, "x": left.value}

    def _alone(self, one: _Entry) -> Row:
        if self._how == "anti":
            return self._of_left(one)
        return {"left_at": None, "x": None, "right_at": None, "y": None} | one.show(self._bounds)


class TimedJoins(Timed):
    """With bounds, and so with event time."""

    inputs = 2

    def __init__(self, how: How, bounds: Bounds) -> None:
        super().__init__()
        self._of = Joins(how, bounds)

    def run(self, rows: Sequence[Row], until: datetime | None) -> list[Row]:
        return super().run([row | {"at": row[TIME]} for row in rows], until)

    def _epoch(self, rows: list[Row], until: datetime | None) -> list[Row]:
        return list(self._of.epoch(rows, until))

    def state(self) -> dict[str, list[Row]]:
        return self._of.state()


def _placed(entries: Sequence[_Entry], show: Any) -> list[Row]:
    """The rows of a table, numbered by key in the order in which they came."""
    by_key = sorted(entries, key=lambda one: repr(one.key))
    return [
        row_of(one.key, **show(one), place=place)
        for _, group in groupby(by_key, key=lambda one: one.key)
        for place, one in enumerate(group)
    ]


def joined(how: How, bounds: Bounds | None = None) -> JoinOperator:
    """The join of records that are side by side already."""
    if bounds is None:
        return JoinOperator.of("joined", Joining.of(KEY, how, None, None, None), UNTIMED)
    within = f"{bounds[0]} s", f"{bounds[1]} s"
    delay = f"{DELAY} s"
    return JoinOperator.of("joined", Joining.of(KEY, how, within, "at", delay), SIDES, delay)


def _workload(name: str, how: How, bounds: Bounds | None = None) -> Workload:
    records = combine(
        **{
            INPUT: (0, 1, 0, 1, 0, 1, 0, 1, 1),
            TIME: [at(s) for s in (0, 0, 1, 2, 3, 4, 8, 9, None)],
        },
        left_x=(1, None, 2, None, None, None, 2, None, None),
        right_y=(None, "a", None, "b", None, "b", None, None, "a"),
    )
    if bounds is None:
        plain = tuple({c: v for c, v in row.items() if c != TIME} for row in records)
        return Workload(name, UNTIMED, joined(how), partial(Joins, how), plain)
    return Workload(name, SIDES, joined(how, bounds), partial(TimedJoins, how, bounds), records)


JOINED = _workload("joined", "inner")
JOINED_FULL = _workload("joined_full", "full", (-2, 1))
JOINED_SEMI = _workload("joined_semi", "semi", (0, 2))
JOINED_ANTI = _workload("joined_anti", "anti", (-1, 0))
