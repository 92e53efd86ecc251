"""Joining two streams: the rows of both wait for one another, by key and time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import pyarrow as pa

from godwit.model.description import OperatorDescription
from godwit.model.schema import check_names, to_ddl
from godwit.model.time import Duration
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, Horizon, TableView
from godwit.operators.definition import INPUT, MATCHED, POSITION, TIME
from godwit.operators.join_epoch import JoinEpoch
from godwit.operators.joining import FROM_LEFT, How, Joining
from godwit.operators.matching import Bounds
from godwit.state.table import TableSpec
from godwit.state.timed import timed_spec

KINDS: Final = ("left", "right")
LEAVING: Final = ("_left_leaving", "_right_leaving")


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One of the two inputs, and what becomes of its rows.

    `columns` are those of its records besides the key, by the names of its own. Its rows can match
    others until the watermark is `stay` microseconds after their time; None: for ever. Rows that
    are `kept` come out when they can match no more and never did; `flagged` ones have to remember
    whether they did.
    """

    kind: str
    columns: Mapping[str, str]
    stay: int | None
    kept: bool
    flagged: bool

    @property
    def waits(self) -> str:
        """The table that says when its rows leave."""
        return LEAVING[self.kind == "right"]


@dataclass(frozen=True)
class JoinOperator:
    """Matches each row of the left with each of the right that has its key and whose time is
    `within` bounds after its own.

    A match comes out in the epoch of its second record. What comes out unmatched, does so in the
    epoch whose watermark says that the row can match no more. Nulls in a key match nothing.
    """

    prefold: ClassVar[None] = None
    inputs: ClassVar[int] = 2
    ordered: ClassVar[bool] = True
    name: str
    how: How
    key: pa.Schema
    input: pa.Schema
    output: pa.Schema
    sides: tuple[JoinSide, JoinSide]
    within: Bounds | None
    delay: int | None

    @classmethod
    def of(
        cls, name: str, joining: Joining, input: pa.Schema, delay: Duration | None = None
    ) -> Self:
        """Over records of both inputs side by side, whose own columns begin with `left_` and
        `right_`; what they call their time is `_time`."""
        with definition.defining(name):
            how, within = joining.how, joining.within
            keys = definition.key_schema(joining.key, input)
            allowed = None
            if within is not None:
                time = input.field(TIME).with_name(joining.times[0])
                allowed = definition.watermark_delay(time, delay)
            once = how in FROM_LEFT
            columns = [
                _columns(input, keys, kind, called)
                for kind, called in zip(KINDS, joining.times, strict=True)
            ]
            if once:  # of the right only key and time matter
                columns[1] = {column: name for column, name in columns[1].items() if column == TIME}
            stay = (None, None) if within is None else (within[1], -within[0])
            kept = how in ("left", "full", "anti"), how in ("right", "full")
            left, right = (
                JoinSide(KINDS[i], columns[i], stay[i], kept[i], kept[i] and not once)
                for i in range(2)
            )
            used = dict.fromkeys([INPUT, *keys.names, *left.columns, *right.columns])
            read = pa.schema([input.field(column) for column in used])
            output = _output(keys, read, (left,) if once else (left, right))
            self = cls(name, how, keys, read, output, (left, right), within, allowed)
            for spec in self.tables:
                definition.check_table(spec)
            return self

    @property
    def once(self) -> bool:
        """Is a row of the left done with when it matches?"""
        return self.how in FROM_LEFT

    @property
    def shown(self) -> Sequence[JoinSide]:
        """The sides whose columns come out."""
        return self.sides[:1] if self.once else self.sides

    @property
    def time(self) -> str | None:
        return None if self.within is None else TIME

    @property
    def lag(self) -> int:
        """Rows come out when they match a later one, or can match none any more."""
        return max(0, *(side.stay or 0 for side in self.sides))

    @property
    def horizon(self) -> Horizon:
        return definition.own_time(self.time)

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        specs = [self._table(side) for side in self.sides]
        if self.within is not None:
            position = pa.schema([(POSITION, pa.int64())])
            specs += [timed_spec(side.waits, self.key, position) for side in self.sides]
        return tuple(specs)

    def describe(self) -> OperatorDescription:
        described = definition.describe("join", self.key, self.tables, self.output)
        bounds = self.within
        within = "any time" if bounds is None else f"{bounds[0]} to {bounds[1]} microseconds"
        return replace(described, functions={"how": self.how, "within": within})

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        return JoinEpoch(self, epoch, hashes, records, state).changes()

    def _table(self, side: JoinSide) -> TableSpec:
        sub = [] if self.within is None else [pa.field(TIME, self.input.field(TIME).type)]
        values = [
            pa.field(name, self.input.field(column).type)
            for column, name in side.columns.items()
            if column != TIME
        ]
        sub.append(pa.field(POSITION, pa.int64()))
        values.insert(0, pa.field(MATCHED, pa.bool_()))
        return TableSpec(side.kind, self.key, pa.schema(sub), pa.schema(values))


def _columns(input: pa.Schema, key: pa.Schema, kind: str, time: str) -> dict[str, str]:
    """The columns of one input, the time first, with their own names."""
    others = [column for column in input.names if column not in key.names]
    own = [column for column in others if column.startswith(f"{kind}_")]
    named = {column: column.removeprefix(f"{kind}_") for column in own}
    return ({TIME: time} if TIME in input.names else {}) | named


def _output(key: pa.Schema, input: pa.Schema, sides: Sequence[JoinSide]) -> pa.Schema:
    """The key, then the columns of each side; a name that both have says which side's it is."""
    names = [set(side.columns.values()) for side in sides]
    shared = names[0].intersection(*names[1:]) if len(sides) > 1 else set()
    fields = [
        pa.field(f"{side.kind}_{name}" if name in shared else name, input.field(column).type)
        for side in sides
        for column, name in side.columns.items()
    ]
    output = pa.schema([*key, *fields])
    check_names(output)
    to_ddl(output)  # refuses types that Spark does not have
    return output
