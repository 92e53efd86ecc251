"""What the query of `bank` must give, computed without Spark and Godwit, and what it gave."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.model.routing import SEGMENTS
from godwit.operators.definition import POSITION
from tests.support.kills.bank import payments
from tests.support.kills.functions import LONGEST, STRUCK

Rows = list[tuple[Any, ...]]  # sorted, so that equal lists are equal multisets

TABLES = {  # operator and the columns of each table
    "value": ("balances", ("account", "n", "balance")),
    "profile": ("statements", ("branch", "seen")),
    "history": ("statements", ("branch", POSITION, "account", "balance")),
    "best": ("statements", ("branch", "account", "balance")),
}
OUTPUT = ("branch", "account", "balance", "seen", "length")


@dataclass(frozen=True, slots=True)
class Truth:
    """The rows of each table of state, and the rows that the sink holds of each epoch."""

    state: Mapping[str, Rows]
    outputs: Mapping[int, Rows]


def expected(published: int, delivered: int) -> Truth:
    """What must be there when these are the newest published and the newest delivered epoch."""
    balances: dict[str, tuple[int, int]] = {}
    seen: dict[str, int] = defaultdict(int)
    history: dict[str, Rows] = defaultdict(list)
    best: dict[tuple[str, str], int] = {}
    outputs: dict[int, Rows] = {}
    for epoch in range(published + 1):
        records = payments(epoch)
        for account, amount in records:
            n, balance = balances.get(account, (0, 0))
            balances[account] = (n + 1, balance + amount)
        outputs[epoch] = []
        for account in sorted({account for account, _ in records}):
            branch, balance = account[0], balances[account][1]
            seen[branch] += 1
            if len(history[branch]) == LONGEST:
                history[branch].clear()
            history[branch].append((account, balance))
            best[branch, account] = max(best.get((branch, account), balance), balance)
            outputs[epoch].append((branch, account, balance, seen[branch], len(history[branch])))
    state: dict[str, Rows] = {
        "value": [(account, *balance) for account, balance in balances.items()],
        "profile": list(seen.items()),
        "history": [
            (branch, position, *row)
            for branch, rows in history.items()
            for position, row in enumerate(rows)
        ],
        "best": [(*key, balance) for key, balance in best.items()],
    }
    return Truth(
        {table: sorted(rows) for table, rows in state.items() if rows},
        {epoch: sorted(rows) for epoch, rows in outputs.items() if epoch <= delivered},
    )


def first_seen(epoch: int) -> int:
    """How much the struck branch has seen with the first record of an epoch."""
    seen: dict[str, int] = dict(expected(epoch - 1, -1).state.get("profile", []))
    return seen.get(STRUCK, 0) + 1


def found(home: Path) -> Truth:
    """What the checkpoint holds as of its newest published epoch, and what the sink holds."""
    checkpoint = home / "checkpoint"
    state = {}
    if any((checkpoint / "godwit" / "manifests").glob("*.json")):
        for table, (operator, _) in TABLES.items():
            snapshot = Snapshot.open(checkpoint, operator, table=table)
            segments = (snapshot.segment(number).to_pylist() for number in range(SEGMENTS))
            state[table] = tabulate(table, (row for rows in segments for row in rows))
    return Truth(state, dict(_sink(home / "output")))


def tabulate(table: str, rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows of a table of state as tuples; a list's positions are counted from 0 for each key."""
    _, columns = TABLES[table]
    tuples = sorted(tuple(row[column] for column in columns) for row in rows)
    if table != "history":
        return tuples
    counts: dict[str, int] = defaultdict(int)
    ranked = []
    for branch, _, *row in tuples:
        ranked.append((branch, counts[branch], *row))
        counts[branch] += 1
    return ranked


def _sink(output: Path) -> Iterable[tuple[int, Rows]]:
    for directory in sorted(output.glob("epoch=*")):
        rows = pq.ParquetDataset(directory).read().select(OUTPUT).to_pylist()
        yield (
            int(directory.name.removeprefix("epoch=")),
            sorted(tuple(row[column] for column in OUTPUT) for row in rows),
        )


def check(home: Path, published: int, delivered: int) -> None:
    """Nothing is lost and nothing is there twice, in the state and in the sink; all is sound."""
    truth, facts = expected(published, delivered), found(home)
    assert facts.outputs == truth.outputs
    assert facts.state == truth.state
    if published >= 0:
        assert verify(home / "checkpoint").findings == []
