"""The forms of a state machine's state: a value, a list, or a map for each key."""

from dataclasses import dataclass

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.keys import Groups
from godwit.model.schema import check_key, parse
from godwit.operators.base import TableView
from godwit.operators.cells.base import Cells
from godwit.operators.cells.list import ListCells
from godwit.operators.cells.map import MapCells
from godwit.operators.cells.read_ahead import ReadAhead
from godwit.operators.cells.value import ValueCells
from godwit.operators.definition import POSITION, check_attributes
from godwit.state.table import TableSpec


@dataclass(frozen=True, slots=True)
class Value:
    """One row for each key: an object with an attribute for each column.

    All attributes of a new key are None. `state.exists` says whether there is a row, and
    `state.clear()` removes it.

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> def add(item, sale, state):
    ...     state.total = (state.total or 0) + sale.price
    ...     yield item, state.total
    >>> totals = gw.stream("item string, price long").state_machine(
    ...     "totals",
    ...     key="item",
    ...     function=add,
    ...     state="total long",  # or {"name": gw.Value("total long"), ...}
    ...     output="item string, total long",
    ... )
    >>> simulation = Simulation(totals.to(gw.files("totals")))
    >>> simulation.feed([{"item": "pen", "price": 2}, {"item": "pen", "price": 3}])
    >>> simulation.outputs()
    [{'item': 'pen', 'total': 2}, {'item': 'pen', 'total': 5}]
    """

    columns: str

    def spec(self, name: str, key: pa.Schema) -> TableSpec:
        values = _columns(name, self.columns)
        check_attributes(f"column of state '{name}'", values.names, ("exists", "clear"))
        return TableSpec(name, key, pa.schema([]), values)

    def open(self, epoch: int, groups: Groups, view: TableView, *, in_order: bool = True) -> Cells:
        return ValueCells(groups, view)


@dataclass(frozen=True, slots=True)
class List:
    """Rows in the order in which they were appended; an element is a value or a named tuple.

    `append` writes one row and reads nothing; iteration and `len` read; `clear` removes all.

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> def note(user, view, state):
    ...     state.urls.append(view.url)
    ...     yield user, list(state.urls)
    >>> notes = gw.stream("user string, url string").state_machine(
    ...     "notes",
    ...     key="user",
    ...     function=note,
    ...     state={"urls": gw.List("url string")},
    ...     output="user string, urls array<string>",
    ... )
    >>> simulation = Simulation(notes.to(gw.files("notes")))
    >>> simulation.feed([{"user": "ann", "url": "/"}, {"user": "ann", "url": "/a"}])
    >>> simulation.outputs()[-1]
    {'user': 'ann', 'urls': ['/', '/a']}
    """

    columns: str

    def spec(self, name: str, key: pa.Schema) -> TableSpec:
        values = _columns(name, self.columns)
        check_attributes(f"column of state '{name}'", values.names)
        return TableSpec(name, key, pa.schema([pa.field(POSITION, pa.int64())]), values)

    def open(self, epoch: int, groups: Groups, view: TableView, *, in_order: bool = True) -> Cells:
        return ListCells(epoch, groups, ReadAhead(groups, view, in_order))


@dataclass(frozen=True, slots=True)
class Map:
    """A dict for each key; what is kept under a key of it is a value or a named tuple.

    A put writes one row and reads nothing, nor does `del`, which is no error where there is no
    such key; `clear` removes all. Its own keys are of types that a key can have and never null.

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> def visit(user, view, state):
    ...     state.visits[view.url] = state.visits.get(view.url, 0) + 1
    ...     yield user, view.url, state.visits[view.url]
    >>> visits = gw.stream("user string, url string").state_machine(
    ...     "visits",
    ...     key="user",
    ...     function=visit,
    ...     state={"visits": gw.Map("url string", "n long")},
    ...     output="user string, url string, n long",
    ... )
    >>> simulation = Simulation(visits.to(gw.files("visits")))
    >>> simulation.feed([{"user": "ann", "url": "/"}, {"user": "ann", "url": "/"}])
    >>> simulation.outputs()[-1]
    {'user': 'ann', 'url': '/', 'n': 2}
    """

    keys: str
    columns: str

    def spec(self, name: str, key: pa.Schema) -> TableSpec:
        sub = pa.schema([pa.field(field.name, field.type) for field in _parse(name, self.keys)])
        check_key(sub)
        values = _columns(name, self.columns)
        check_attributes(f"column of state '{name}'", [*sub.names, *values.names])
        return TableSpec(name, key, sub, values)

    def open(self, epoch: int, groups: Groups, view: TableView, *, in_order: bool = True) -> Cells:
        return MapCells(groups, ReadAhead(groups, view, in_order))


Form = Value | List | Map


def _columns(name: str, ddl: str) -> pa.Schema:
    """The value columns of a state; a row that removes another has nulls in them."""
    schema = _parse(name, ddl)
    for field in schema:
        if not field.nullable:
            raise ConfigError(
                f"column '{field.name}' of state '{name}' is NOT NULL, "
                "but all state starts as null; leave NOT NULL out"
            )
    return schema


def _parse(name: str, ddl: str) -> pa.Schema:
    try:
        return parse(ddl)
    except ConfigError as error:
        raise ConfigError(f"state '{name}': {error}") from None
