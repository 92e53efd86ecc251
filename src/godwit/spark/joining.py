"""The two inputs of a join side by side."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame

from godwit.operators.joining import Joining
from godwit.spark.windows import SideBySide


@dataclass(frozen=True, slots=True)
class JoinedSides(SideBySide):
    """`SideBySide`, where the inputs may call differently what they share."""

    joining: Joining

    @classmethod
    def of(cls, joining: Joining) -> Self:
        return cls(joining.shared, joining)

    def __call__(self, left: DataFrame, right: DataFrame) -> DataFrame:
        inputs = enumerate((left, right))
        renamed = [rows.withColumnsRenamed(self.joining.renamed(side)) for side, rows in inputs]
        return SideBySide(self.shared)(*renamed)

    def columns(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        self.joining.check(left, right)
        inputs = enumerate((left.empty_table(), right.empty_table()))
        renamed = [rows.rename_columns(self._names(side, rows.schema)) for side, rows in inputs]
        return SideBySide(self.shared).columns(*(rows.schema for rows in renamed))

    def records(self, left: pa.Table, right: pa.Table) -> pa.Table:
        inputs = enumerate((left, right))
        renamed = [rows.rename_columns(self._names(side, rows.schema)) for side, rows in inputs]
        return SideBySide(self.shared).records(*renamed)

    def _names(self, side: int, columns: pa.Schema) -> list[str]:
        renamed = self.joining.renamed(side)
        return [renamed.get(name, name) for name in columns.names]
