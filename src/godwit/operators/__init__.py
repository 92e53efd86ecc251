"""Stateful operators: functions from records and state to outputs and changed state."""

from godwit.aggregates.approx_count_distinct import approx_count_distinct
from godwit.aggregates.approx_quantiles import approx_quantiles
from godwit.aggregates.average import avg
from godwit.aggregates.base import Aggregate
from godwit.aggregates.booleans import any, every
from godwit.aggregates.collect_list import collect_list
from godwit.aggregates.count import count
from godwit.aggregates.extremes import max, min
from godwit.aggregates.first_last import first, last
from godwit.aggregates.sum import sum
from godwit.aggregates.top import top
from godwit.aggregates.variance import stddev, variance
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
    "any",
    "approx_count_distinct",
    "approx_quantiles",
    "avg",
    "collect_list",
    "count",
    "every",
    "first",
    "last",
    "max",
    "min",
    "stddev",
    "sum",
    "top",
    "variance",
]
