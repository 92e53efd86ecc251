"""What windows and two inputs need of Spark: DataFrame code before an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from godwit.errors import ConfigError
from godwit.operators.definition import INPUT
from godwit.operators.events import Side
from godwit.operators.windows import (
    END,
    START,
    Sliding,
)
from godwit.spark.route import column

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Assign:
    """Gives each record the columns `window_start` and `window_end`, once for each of its windows.

    Those of an earlier operator are replaced. Without a time a record is in no window.
    """

    time: str
    window: Sliding

    def __call__(self, rows: DataFrame) -> DataFrame:
        length, slide = (f"{n} microseconds" for n in (self.window.length, self.window.slide))
        spans = sf.window(column(self.time), length, slide)
        return rows.select("*", spans.alias("_window")).select(
            *(column(name) for name in rows.columns if name not in (START, END)),
            sf.col("_window.start").alias(START),
            sf.col("_window.end").alias(END),
        )


@dataclass(frozen=True, slots=True)
class Lasting:
    """Leaves out records that are in no session: those without a time `until`, after their own."""

    time: str
    until: str

    def __call__(self, rows: DataFrame) -> DataFrame:
        return rows.where(column(self.until) > column(self.time))


def side_by_side(
    left: DataFrame, right: DataFrame, shared: Sequence[str]
) -> tuple[DataFrame, tuple[Side, ...]]:
    """Two inputs as one, whose column `_input` says which; each has its own columns besides those
    that both share."""
    for name in shared:
        kinds = []
        for rows in (left, right):
            if name not in rows.columns:
                raise ConfigError(f"column '{name}' is not in both inputs")
            kinds.append(rows.schema[name].dataType)
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"column '{name}' is {kinds[0].simpleString()} on the left and "
                f"{kinds[1].simpleString()} on the right; cast one of them"
            )
    time = shared[-1]
    inputs, sides = [], []
    for number, (kind, rows) in enumerate((("left", left), ("right", right))):
        own = {f"{kind}_{name}": name for name in rows.columns if name not in shared}
        inputs.append(
            rows.select(
                sf.lit(number).cast("tinyint").alias(INPUT),
                *map(column, shared),
                *(column(name).alias(alias) for alias, name in own.items()),
            )
        )
        sides.append(Side(kind, {time: time, **own}))
    return inputs[0].unionByName(inputs[1], allowMissingColumns=True), tuple(sides)
