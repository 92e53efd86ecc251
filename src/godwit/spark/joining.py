"""The two inputs of a join side by side."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame

from godwit.operators.joining import Joining
from godwit.spark.windows import SideBySide


@dataclass(frozen=True, slots=True)
class JoinedSides(SideBySide):
    """`SideBySide`, where the inputs may call differently what they share.

    `names` says for each side what columns are to be called.
    """

    joining: Joining
    names: tuple[dict[str, str], dict[str, str]]

    @classmethod
    def of(cls, joining: Joining) -> Self:
        return cls(joining.shared, joining, (joining.renamed(0), joining.renamed(1)))

    def __call__(self, left: DataFrame, right: DataFrame) -> DataFrame:
        inputs = zip((left, right), self.names, strict=True)
        return SideBySide(self.shared)(*(rows.withColumnsRenamed(names) for rows, names in inputs))

    def columns(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        self.joining.check(left, right)
        inputs = enumerate((left.empty_table(), right.empty_table()))
        renamed = [rows.rename_columns(self._renamed(side, rows.schema)) for side, rows in inputs]
        return SideBySide(self.shared).columns(*(rows.schema for rows in renamed))

    def records(self, left: pa.Table, right: pa.Table) -> pa.Table:
        inputs = enumerate((left, right))
        renamed = [rows.rename_columns(self._renamed(side, rows.schema)) for side, rows in inputs]
        return SideBySide(self.shared).records(*renamed)

    def _renamed(self, side: int, columns: pa.Schema) -> list[str]:
        return [self.names[side].get(name, name) for name in columns.names]
