"""Stateful operators: functions from records and state to outputs and changed state."""

from godwit.aggregates.average import avg
from godwit.aggregates.base import Aggregate
from godwit.aggregates.count import count
from godwit.aggregates.extremes import max, min
from godwit.aggregates.first_last import first, last
from godwit.aggregates.sum import sum
from godwit.operators.aggregate import AggregateOperator
from godwit.operators.base import Changes, Operator, TableView
from godwit.operators.forms import Form, List, Map, Value
from godwit.operators.state_machine import StateMachine

__all__ = [
    "Aggregate",
    "AggregateOperator",
    "Changes",
    "Form",
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
