"""May a query go on with the state of its checkpoint? Asked before the first epoch of a restart."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from godwit.errors import ConfigError, IncompatibleError
from godwit.log.history import History
from godwit.log.layout import SPARK
from godwit.log.spark_log import NO_SPARK, newest_commit
from godwit.model.description import OperatorDescription
from godwit.model.graph import Graph
from godwit.model.manifest import Manifest
from godwit.model.routing import check_bins, check_workers
from godwit.model.schema import parse
from godwit.model.text import plural

_NEW = "start with a new checkpoint (state that gw.read_state reads can be given as initial=...)"


def check_restart(
    history: History,
    operators: Mapping[str, OperatorDescription],
    graph: Graph,
    drop: Collection[str],
    workers: int | None,
    bins: int | None,
) -> None:
    """Refuse a query that does not fit its checkpoint, or cannot work, before taking it over."""
    if workers is not None:
        check_workers(workers)
    if bins is not None:
        check_bins(bins)
    if kept := sorted(set(drop) & operators.keys()):
        raise ConfigError(
            f"the query has operator '{kept[0]}', which it is to drop; do one of both"
        )
    if last := history.last():
        stored = last.graph or Graph.chain(list(last.operators))
        check_compatible(last.operators, operators, drop)
        check_graph(stored, graph, is_old=last.graph is None)
        if changed := _changed_part(stored, graph):
            _check_settled(history, last, changed, graph)
    elif begun := history.intents():
        decided = history.since(begun[-1])
        check_present(decided, operators)
        for name in graph.inputs:
            if name not in decided:
                raise _unsettled(name, f"epoch {begun[-1]} was decided without it")


def check_compatible(
    stored: Mapping[str, OperatorDescription],
    given: Mapping[str, OperatorDescription],
    drop: Collection[str] = (),
) -> None:
    """Operators and nullable value columns may be added, and operators dropped if that is said;
    everything else that differs is refused by name."""
    check_present(stored, given, drop)
    for name, before in stored.items():
        if name in given:
            _check_operator(name, before, given[name])


def check_present(
    stored: Collection[str], given: Collection[str], drop: Collection[str] = ()
) -> None:
    """An operator's name is its identity: none may go unless it is to be dropped."""
    for name in stored:
        if name not in given and name not in drop:
            raise IncompatibleError(
                name,
                f"the query no longer has it, but {', '.join(given)}. Keep the name, start with "
                f"drop=['{name}'], which deletes its state, or {_NEW}",
            )


def check_graph(stored: Graph, given: Graph, *, is_old: bool) -> None:
    """An operator that stays gets what it got before; sources stay in their order.

    An old checkpoint does not tell of sources.
    """
    for name, before in stored.inputs.items():
        if name not in given.inputs:
            continue
        was, now = ([one.operators for one in inputs] for inputs in (before, given.inputs[name]))
        if is_old and not any(was) and not any(now):
            continue
        if was != now:
            raise _changed(name, f"it got {_told(was)}, and now gets {_told(now)}")
        sources = [[one.sources for one in inputs] for inputs in (before, given.inputs[name])]
        if stored.sources and given.sources and sources[0] != sources[1]:
            raise _changed(name, "it gets other sources than before")
    known, read = stored.sources, given.sources
    if not known or not read or known == read:
        return
    if len(known) != len(read):
        change = f"the query read {plural(len(known), 'source')}, and now reads {len(read)}"
    elif sorted(known) == sorted(read):
        change = f"the order of its sources was {', '.join(known)}, and Spark knows them by it"
    else:
        return
    raise IncompatibleError(
        next(iter(given.inputs)), f"{change}. Read the same sources in the same order, or {_NEW}"
    )


def _changed_part(stored: Graph, given: Graph) -> str | None:
    """An operator that came or went, or whose outputs go to more or fewer sinks."""
    for name in stored.inputs.keys() ^ given.inputs.keys():
        return name
    before, now = (
        Counter((outlet.operators, outlet.late) for outlet in one.outlets)
        for one in (stored, given)
    )
    if not before or not now:
        return None
    changed = (before - now) + (now - before)
    return next((name for names, _ in changed for name in names), None)


def _check_settled(history: History, last: Manifest, operator: str, given: Graph) -> None:
    """An epoch runs with the operators that it was decided with: a query whose first epoch of a
    changed graph was interrupted goes on. A published one is delivered to the sinks that it had."""
    begun = max(history.intents(), default=last.epoch)
    if begun > last.epoch and history.since(begun).keys() != given.inputs.keys():
        raise _unsettled(operator, f"epoch {begun} was decided with another graph")
    if last.query in ("", NO_SPARK) or last.epoch < 0:
        return
    committed = newest_commit(history.checkpoint.within(SPARK))
    if committed is None or committed < last.epoch:
        raise _unsettled(operator, f"epoch {last.epoch} may not have reached all sinks")


def _unsettled(operator: str, why: str) -> IncompatibleError:
    return IncompatibleError(
        operator,
        f"{why}. Start the query once as it was, stop it with 'godwit stop', which lets it end an "
        "epoch, and then change its graph",
    )


def _told(inputs: Sequence[Sequence[str]]) -> str:
    """What the inputs of an operator are.

    >>> _told([["clicks"], []]), _told([["a", "b"]])
    ("'clicks' and a source", "'a', 'b'")
    """
    return " and ".join(", ".join(f"'{name}'" for name in one) or "a source" for one in inputs)


def _changed(name: str, change: str) -> IncompatibleError:
    return IncompatibleError(name, f"{change}. Define it as it was, or {_NEW}")


def _check_operator(name: str, before: OperatorDescription, now: OperatorDescription) -> None:
    if (before.kind, now.kind) == ("windows", "panes") and before.window == now.window:
        raise IncompatibleError(
            name,
            "its checkpoint has a row for each sliding window, as an earlier version of Godwit "
            "wrote them, and this version keeps panes. Finish the query with that version, or "
            "start with a new checkpoint",
        )
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
