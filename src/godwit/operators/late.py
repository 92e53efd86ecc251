"""Late records as rows for a sink of their own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from godwit.errors import ConfigError
from godwit.model.description import OperatorDescription
from godwit.model.schema import check_names, to_ddl
from godwit.operators import definition
from godwit.operators.base import Changes, Hashes, Operator, TableView
from godwit.operators.definition import INPUT, TIME
from godwit.operators.join import KINDS
from godwit.operators.wrapper import Wrapper

SIDE: Final = "side"


@dataclass(frozen=True)
class KeepingLate(Wrapper):
    """`of`, whose late records come out besides: each once, with all columns that were given to it.

    So workers get all columns and each record for itself: nothing is folded before. `given` has the
    fields of what comes out, by the column that a worker gets.
    """

    given: Mapping[str, pa.Field]

    @classmethod
    def define(cls, operator: Operator, given: Mapping[str, pa.Field]) -> Self:
        """Of one input."""
        with definition.defining(operator.name):
            if operator.delay is None:
                needed = "within=..., time=..." if operator.inputs > 1 else "time=..."
                raise ConfigError(
                    "without event time no record is late, so late=... has nothing to get; give "
                    f"it {needed} and delay=..."
                )
            self = cls(operator, given)
            check_names(self.late)
            to_ddl(self.late)  # refuses types that Spark does not have
            return self

    @classmethod
    def sides(
        cls, operator: Operator, input: pa.Schema, shared: Sequence[str], time: str | None
    ) -> Self:
        """Of two inputs side by side: what both share, then the columns of each; a name that both
        have says which side's it is. `time` is what the left calls its time."""
        names = {name: time or name if name == TIME else name for name in shared}
        own = {
            name: name.removeprefix(f"{kind}_")
            for kind in KINDS
            for name in input.names
            if name not in (INPUT, *shared) and name.startswith(f"{kind}_")
        }
        often = Counter([SIDE, *names.values(), *own.values()])
        names |= {name: plain if often[plain] == 1 else name for name, plain in own.items()}
        fields = {name: input.field(name).with_name(called) for name, called in names.items()}
        return cls.define(operator, {INPUT: pa.field(SIDE, pa.string()), **fields})

    @cached_property
    def input(self) -> pa.Schema:
        more = [
            field.with_name(name).with_nullable(True)
            for name, field in self.given.items()
            if name not in self.of.input.names
        ]
        return pa.schema([*self.of.input, *more])

    @property
    def prefold(self) -> None:
        """Of a folded row nobody could tell the records."""

    @cached_property
    def late(self) -> pa.Schema:
        """The columns of late records."""
        return pa.schema([field.with_nullable(True) for field in self.given.values()])

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        return self.of.process(epoch, hashes, records.select(self.of.input.names), state)

    def describe(self) -> OperatorDescription:
        return replace(self.of.describe(), late=to_ddl(self.late))

    def as_given(self, records: pa.Table) -> pa.Table:
        """Records of workers as they were given."""
        return pa.table(
            [
                pc.take(pa.array(KINDS), records.column(name))
                if name == INPUT
                else records.column(name)
                for name in self.given
            ],
            names=self.late.names,
        )
