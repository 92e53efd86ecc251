"""Stateful operators: functions from records and state to outputs and changed state."""

from godwit.aggregates.functions import Function, avg, count, first, last, max, min, sum
from godwit.operators.aggregate import Aggregate
from godwit.operators.base import Changes, Operator, TableView
from godwit.operators.forms import Form, List, Map, Value
from godwit.operators.state_machine import StateMachine

__all__ = [
    "Aggregate",
    "Changes",
    "Form",
    "Function",
    "List",
    "Map",
    "Operator",
    "StateMachine",
    "TableView",
    "Value",
    "avg",
    "count",
    "first",
    "last",
    "max",
    "min",
    "sum",
]
