"""The aggregate functions, as values.

Names, types and nulls are Spark's, which here means: a sum of integers is a long and wraps around
on overflow, as Spark's does outside of ANSI mode; a decimal that outgrows its type fails the query;
a sum of no values is null; `min` and `max` skip nulls and take NaN for the largest number; `first`
and `last` do not skip nulls.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["count", "sum", "min", "max", "avg", "first", "last"]


@dataclass(frozen=True, slots=True)
class Function:
    """What to compute from which column; only `count` can do without one.

    >>> sum("price")
    Function(kind='sum', column='price')
    """

    kind: Kind
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"


def count(column: str | None = None) -> Function:
    """The number of records, or of those in which `column` is not null.

    >>> str(count("url"))
    'count(url)'
    """
    return Function("count", column)


def sum(column: str) -> Function:
    """The sum: a long for integers, a double for floats, a decimal with 10 digits more.

    >>> str(sum("price"))
    'sum(price)'
    """
    return Function("sum", column)


def min(column: str) -> Function:
    """The smallest value.

    >>> str(min("price"))
    'min(price)'
    """
    return Function("min", column)


def max(column: str) -> Function:
    """The largest value.

    >>> str(max("price"))
    'max(price)'
    """
    return Function("max", column)


def avg(column: str) -> Function:
    """The mean: a double, or for decimals a decimal with 4 more digits after the point.

    >>> str(avg("price"))
    'avg(price)'
    """
    return Function("avg", column)


def first(column: str) -> Function:
    """The value of the record with the earliest time; without times, of the first that came.

    >>> str(first("url"))
    'first(url)'
    """
    return Function("first", column)


def last(column: str) -> Function:
    """The value of the record with the latest time; without times, of the last that came.

    >>> str(last("url"))
    'last(url)'
    """
    return Function("last", column)
