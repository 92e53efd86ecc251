"""Operators whose late records have a sink: what they need of the steps before them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from godwit.model.schema import check_names
from godwit.operators.base import Operator
from godwit.operators.definition import defining
from godwit.operators.late import KeepingLate
from godwit.spark.node import Step
from godwit.spark.windows import Assign, AssignPane, given_names

Keep = Callable[[Sequence[Step], pa.Schema], Sequence[Step]]


def keeping_late(steps: Sequence[Step], input: pa.Schema) -> Sequence[Step]:
    """The same steps over records of schema `input`, but the operator keeps late ones, as they
    come in."""
    *before, operator = steps
    assert isinstance(operator, Operator)
    with defining(operator.name):
        check_names(input)
    names: dict[str, str] = {}
    for place, step in enumerate(before):
        if isinstance(step, Assign | AssignPane):
            before[place] = replace(step, keeping=True)
            names = given_names(input.names)
    given = {names.get(field.name, field.name): field for field in input}
    return [*before, KeepingLate.define(operator, given)]


def keeping_sides(
    steps: Sequence[Step], input: pa.Schema, *, shared: Sequence[str], time: str | None = None
) -> Sequence[Step]:
    """`keeping_late` of two inputs side by side, which share some columns."""
    (operator,) = steps
    assert isinstance(operator, Operator)
    return [KeepingLate.sides(operator, input, shared, time)]
