"""Which Python values a column takes.

Arrow is more generous than a state should be: it rounds 1.5 to a long, splits a string into an
array, and reads a number as a date.
"""

import datetime
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

_Types = tuple[type, ...]

_PYTHON_TYPES: tuple[tuple[Callable[[pa.DataType], bool], _Types, _Types], ...] = (
    (pa.types.is_boolean, (bool, np.bool_), ()),
    (pa.types.is_integer, (int, np.integer), (bool,)),
    (pa.types.is_floating, (float, int, np.floating, np.integer), (bool,)),
    (pa.types.is_decimal, (Decimal, int), (bool,)),
    (pa.types.is_string, (str,), ()),
    (pa.types.is_binary, (bytes, bytearray, memoryview), ()),
    (pa.types.is_date, (datetime.date,), (datetime.datetime,)),
    (pa.types.is_timestamp, (datetime.datetime,), ()),
    (pa.types.is_list, (list, tuple, np.ndarray), ()),
    (pa.types.is_map, (dict, list, tuple), ()),
    (pa.types.is_struct, (dict, tuple), ()),
)


class WrongTypeError(TypeError):
    """A value of a Python type that a column does not take."""


def check_types(values: Iterable[Any], kind: pa.DataType) -> None:
    """Refuse values of Python types that Arrow takes for something else than they are."""
    given = [value for value in values if value is not None]
    accepted, refused = _python_types(kind)
    for found in set(map(type, given)):
        if not issubclass(found, accepted) or issubclass(found, refused):
            _refuse(next(value for value in given if type(value) is found), kind)
    if pa.types.is_timestamp(kind):
        _check_zones(given, kind)
    elif pa.types.is_list(kind):
        check_types(chain.from_iterable(given), kind.value_type)
    elif pa.types.is_map(kind):
        maps = (value.items() if isinstance(value, dict) else value for value in given)
        pairs = list(chain.from_iterable(maps))
        check_types([key for key, _ in pairs], kind.key_type)
        check_types([item for _, item in pairs], kind.item_type)
    elif pa.types.is_struct(kind):
        _check_structs(given, kind)


def _python_types(kind: pa.DataType) -> tuple[_Types, _Types]:
    """The types that a column takes, and subclasses of them that it does not."""
    for belongs, accepted, refused in _PYTHON_TYPES:
        if belongs(kind):
            return accepted, refused
    return (object,), ()


def _check_zones(moments: Iterable[datetime.datetime], kind: pa.DataType) -> None:
    for moment in moments:
        if (moment.tzinfo is None) is not (kind.tz is None):
            _refuse(moment, kind)


def _check_structs(structs: Sequence[Any], kind: pa.StructType) -> None:
    names = [kind.field(i).name for i in range(kind.num_fields)]
    for struct in structs:
        if len(struct) != len(names) or (isinstance(struct, dict) and struct.keys() != set(names)):
            _refuse(struct, kind)
    for i, name in enumerate(names):
        values = [struct[name] if isinstance(struct, dict) else struct[i] for struct in structs]
        check_types(values, kind.field(i).type)


def _refuse(value: Any, kind: pa.DataType) -> NoReturn:
    raise WrongTypeError(f"{value!r} ({type(value).__name__}) is no {kind}")
