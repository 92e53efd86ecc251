"""An operator around another one."""

from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from godwit.model.description import OperatorDescription
from godwit.operators.base import Horizon, Lagging, Operator, Prefold
from godwit.state.table import TableSpec


@dataclass(frozen=True)
class Wrapper:
    """Like `of` in all that a subclass does not define itself."""

    of: Operator

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def key(self) -> pa.Schema:
        return self.of.key

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return self.of.tables

    @property
    def input(self) -> pa.Schema:
        return self.of.input

    @property
    def output(self) -> pa.Schema:
        return self.of.output

    @property
    def ordered(self) -> bool:
        return self.of.ordered

    @property
    def time(self) -> str | None:
        return self.of.time

    @property
    def delay(self) -> int | None:
        return self.of.delay

    @property
    def horizon(self) -> Horizon:
        return self.of.horizon

    @property
    def lag(self) -> int:
        return self.of.lag if isinstance(self.of, Lagging) else 0

    @property
    def inputs(self) -> int:
        return self.of.inputs

    @property
    def prefold(self) -> Prefold | None:
        inner = self.of.prefold
        if inner is None:
            return None
        return replace(inner, operator=cast(Operator, replace(self, of=inner.operator)))

    def describe(self) -> OperatorDescription:
        return self.of.describe()
