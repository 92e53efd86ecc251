"""Whether one boolean is true, or all are: the largest and the smallest, as true is the larger."""

from dataclasses import dataclass

import pyarrow as pa

from godwit.aggregates.base import Aggregate, AggregateInput
from godwit.aggregates.extremes import Max, Min
from godwit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Any(Max):
    """Is one of them true?"""

    def output(self, input: AggregateInput) -> pa.DataType:
        return _boolean(self.column, input)


@dataclass(frozen=True, slots=True)
class Every(Min):
    """Are all of them true?"""

    def output(self, input: AggregateInput) -> pa.DataType:
        return _boolean(self.column, input)


def _boolean(column: str, input: AggregateInput) -> pa.DataType:
    kind = input.type(column)
    if not pa.types.is_boolean(kind):
        raise ConfigError(
            f"column '{column}' is of type {kind}, not boolean; select the condition as a column"
        )
    return kind


def any(column: str) -> Aggregate:
    """Is one of the booleans true? Nulls are skipped; null if there is no value.

    >>> str(any("failed"))
    'any(failed)'
    """
    return Any(column)


def every(column: str) -> Aggregate:
    """Are all of the booleans true? Nulls are skipped; null if there is no value.

    >>> str(every("passed"))
    'every(passed)'
    """
    return Every(column)
