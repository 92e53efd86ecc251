"""May a query go on with the state of its checkpoint? Asked before the first epoch of a restart."""

from collections.abc import Collection, Mapping

import pyarrow as pa

from godwit.errors import IncompatibleError
from godwit.log.history import History
from godwit.model.description import OperatorDescription
from godwit.model.routing import check_bins, check_workers
from godwit.model.schema import parse

_NEW = "start with a new checkpoint (state that gw.read_state reads can be given as initial=...)"


def check_restart(
    history: History,
    operators: Mapping[str, OperatorDescription],
    workers: int | None,
    bins: int | None,
) -> None:
    """Refuse a query that does not fit its checkpoint, or cannot work, before taking it over."""
    if workers is not None:
        check_workers(workers)
    if bins is not None:
        check_bins(bins)
    if last := history.last():
        check_compatible(last.operators, operators)
    elif begun := history.intents():
        check_same_names(history.since(begun[-1]), operators)


def check_compatible(
    stored: Mapping[str, OperatorDescription], given: Mapping[str, OperatorDescription]
) -> None:
    """Nullable value columns may be added; everything else that differs is refused by name."""
    check_same_names(stored, given)
    for name, before in stored.items():
        _check_operator(name, before, given[name])


def check_same_names(stored: Collection[str], given: Collection[str]) -> None:
    """An operator's name is its identity: none may come or go."""
    for name in set(stored) - set(given):
        now = ", ".join(given)
        raise IncompatibleError(
            name,
            f"the query no longer has it, but {now}; its state would be orphaned. Keep the name, "
            f"or {_NEW}",
        )
    for name in set(given) - set(stored):
        known = ", ".join(sorted(stored))
        raise IncompatibleError(
            name, f"it is new; the checkpoint holds state of: {known}. Leave it out, or {_NEW}"
        )


def _changed(name: str, change: str) -> IncompatibleError:
    return IncompatibleError(name, f"{change}. Define it as it was, or {_NEW}")


def _check_operator(name: str, before: OperatorDescription, now: OperatorDescription) -> None:
    parts = {
        "kind": (before.kind, now.kind),
        "key": (before.key, now.key),
        "window": (before.window, now.window),
    }
    for part, (was, is_now) in parts.items():
        if was != is_now:
            raise _changed(name, f"its {part} was '{was}', now '{is_now}'")
    for column, function in before.functions.items():
        if (given := now.functions.get(column)) != function:
            raise _changed(name, f"{column} was {function}, now {given or 'missing'}")
    for table in before.tables.keys() ^ now.tables.keys():
        change = "removed" if table in before.tables else "added"
        raise _changed(name, f"state '{table}' was {change}")
    for table, described in before.tables.items():
        if described.sub != now.tables[table].sub:
            raise _changed(name, f"the form of state '{table}' changed")
        _check_values(name, table, _columns(described.value), _columns(now.tables[table].value))


def _columns(ddl: str) -> pa.Schema:
    return parse(ddl) if ddl else pa.schema([])


def _check_values(name: str, table: str, before: pa.Schema, now: pa.Schema) -> None:
    for field in before:
        index = now.get_field_index(field.name)
        if index < 0:
            raise _changed(name, f"column '{field.name}' of state '{table}' was removed")
        if now.field(index).type != field.type:
            raise _changed(
                name,
                f"column '{field.name}' of state '{table}' was {field.type}, "
                f"now {now.field(index).type}",
            )
