"""Loading a state that was given at the start: rows of one table become its first run."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from godwit.errors import OperatorError
from godwit.model.keys import distinct
from godwit.operators.base import Changes, Hashes, TableView
from godwit.operators.definition import POSITION
from godwit.operators.wrapper import Wrapper
from godwit.state.table import UPSERT, TableSpec


@dataclass(frozen=True)
class Load(Wrapper):
    """Stands in for `of` in the initial epoch; its records are rows of the table named `table`."""

    table: str

    @property
    def input(self) -> pa.Schema:
        (spec,) = (spec for spec in self.tables if spec.name == self.table)
        return pa.schema([*spec.key, *spec.sub, *spec.value])

    @property
    def ordered(self) -> bool:
        return True

    @property
    def time(self) -> str | None:
        return None

    @property
    def delay(self) -> int | None:
        return None

    @property
    def prefold(self) -> None:
        return None

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        spec = state[self.table].spec
        identity = records.select([*spec.key.names, *spec.sub.names])
        groups = distinct(hashes, identity, ordered=True)
        if len(groups.starts) < len(hashes):
            twice = int(np.flatnonzero(np.diff(groups.starts, append=len(hashes)) > 1)[0])
            key = groups.keys.slice(twice, 1).to_pylist()[0]
            raise OperatorError(self.name, repr(key), "this key stands twice in the initial state")
        for name in spec.sub.names:
            if records.column(name).null_count:
                raise OperatorError(
                    self.name, "?", f"column '{name}' of the initial state has nulls"
                )
        if spec.sub.names == [POSITION]:
            records = _renumbered(records, hashes, spec)
        columns = [pa.array(hashes), pa.repeat(pa.scalar(UPSERT, pa.int8()), len(hashes))]
        columns += [self._cast(records.column(f.name), f) for f in list(spec.schema)[2:]]
        return Changes({self.table: pa.table(columns, schema=spec.schema)})

    def _cast(self, values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        try:
            return values.cast(field.type)
        except pa.ArrowInvalid as error:
            cause = f"column '{field.name}' of the initial state does not fit {field.type}: {error}"
            raise OperatorError(self.name, "?", cause) from None


def _renumbered(records: pa.Table, hashes: Hashes, spec: TableSpec) -> pa.Table:
    """Count the elements of each list from 0, in their order: what is appended comes after them."""
    starts = distinct(hashes, records.select(spec.key.names), ordered=True).starts
    rows = np.arange(len(hashes))
    positions = rows - starts[np.searchsorted(starts, rows, side="right") - 1]
    place = records.column_names.index(POSITION)
    return records.set_column(place, POSITION, pa.array(positions, pa.int64()))
