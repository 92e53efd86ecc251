"""What a manifest says of an operator, so that a restart can tell whether its state still fits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The sub-key and the value of a state table, as DDL."""

    sub: str
    value: str

    def to_json(self) -> dict[str, str]:
        return {"sub": self.sub, "value": self.value}


@dataclass(frozen=True, slots=True)
class OperatorDescription:
    """Kind, key and tables of an operator, and what its results come from; schemas are DDL.

    Aggregates have `functions`, by the column of their result; operators over windows a `window`,
    and those that keep late records the columns of these in `late`.
    """

    kind: str
    key: str
    output: str
    tables: Mapping[str, TableDescription]
    functions: Mapping[str, str] = field(default_factory=dict)
    window: str | None = None
    late: str | None = None

    def to_json(self) -> dict[str, Any]:
        functions = {"functions": dict(self.functions)} if self.functions else {}
        window = {} if self.window is None else {"window": self.window}
        late = {} if self.late is None else {"late": self.late}
        return {
            "kind": self.kind,
            "key": self.key,
            "output": self.output,
            "tables": {name: table.to_json() for name, table in self.tables.items()},
            **functions,
            **window,
            **late,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        tables = {name: TableDescription(**table) for name, table in data["tables"].items()}
        return cls(**{**data, "tables": tables})
