"""How does the time of an epoch grow with the state, at a fixed number of records an epoch?

Twice: known keys, with states of 1 M to 30 M keys that take turns; and one state that new keys make
grow from 1 M to 30 M. Beside the times, the write amplification: bytes written for state over bytes
of deltas.
"""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from godwit.cli.output import note
from godwit.log.history import History
from lab.bench.application import Bench
from lab.bench.contenders import OPERATOR, godwit_count
from lab.bench.results import BenchResults, show, spread, summary
from lab.tools.filling import fresh, settled
from lab.tools.tables import show_table
from lab.tools.turns import TimedQuery, Turn, take_turns

EPOCHS = 16  # with the warm-up fewer than a checkpoint retains
AGING = 3  # turns before the first that counts, so that the states have as many runs as they will


def run(bench: Bench) -> None:
    rows = bench.pick(500_000, 20_000)
    small = bench.pick(1_000_000, 100_000)
    sizes = [small, 3 * small, 10 * small, 30 * small]
    report = BenchResults("growth", bench, {"epochs": EPOCHS, "rows": rows, "aging_turns": AGING})
    _known_keys(bench, report, sizes, rows)
    _new_keys(bench, report, small, 30 * small, rows)


def _known_keys(bench: Bench, report: BenchResults, sizes: Sequence[int], rows: int) -> None:
    contenders = [_state(bench, "known", size, settled(size), rows) for size in sizes]
    note("  known keys: loading and aging")
    take_turns(contenders, bench.pick(AGING, 1), EPOCHS)
    turns: dict[str, list[Turn]] = {contender.name: [] for contender in contenders}
    written: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(bench.repetitions):
        for contender in contenders:
            turn = take_turns([contender], 1, EPOCHS)[contender.name][0]
            turns[contender.name].append(turn)
            written[contender.name].append(amplification(contender.checkpoint, _numbers(turn)))
    base = turns[contenders[0].name]
    lines = []
    for size, contender in zip(sizes, contenders, strict=True):
        mine = turns[contender.name]
        grown = spread([_median([a]) / _median([b]) for a, b in zip(mine, base, strict=True)])
        amplified = spread(written[contender.name])
        found = summary(mine)
        report.add({"keys": size, "new": False}, **found, growth=grown, amplification=amplified)
        seconds = found["epoch_seconds"]
        lines.append([size, seconds["median"], seconds["p99"], show(grown), show(amplified)])
    print(f"Known keys, {rows:,} records an epoch:")
    show_table(["keys", "epoch s", "p99 s", "growth", "write amplification"], lines)


def _new_keys(bench: Bench, report: BenchResults, small: int, large: int, rows: int) -> None:
    contender = _state(bench, "new", small, fresh(small), rows)
    note("  new keys")
    lines: list[list[Any]] = []
    first: list[Turn] = []
    keys = small
    while keys < large:
        (turn,) = take_turns([contender], 1, EPOCHS)[contender.name]
        first = first or [turn]
        keys = small + (turn.epochs[-1].number + 1) * rows
        amplified = amplification(contender.checkpoint, _numbers(turn))
        grown = _median([turn]) / _median(first)
        found = summary([turn])
        report.add({"keys": keys, "new": True}, **found, growth=grown, amplification=amplified)
        seconds = found["epoch_seconds"]
        lines.append([keys, seconds["median"], seconds["p99"], grown, amplified])
    print(f"New keys only, {rows:,} records an epoch:")
    show_table(["keys", "epoch s", "p99 s", "growth", "write amplification"], lines)


def amplification(checkpoint: Path, epochs: Iterable[int]) -> float:
    """Bytes written for state in these epochs, over the bytes of their deltas."""
    history = History(checkpoint)
    receipts = [
        receipt
        for epoch in epochs
        if (manifest := history.manifest(epoch))
        for receipt in manifest.receipts[OPERATOR]
    ]
    deltas = sum(receipt.bytes for receipt in receipts)
    return float((deltas + sum(receipt.merged_bytes for receipt in receipts)) / deltas)


def _state(bench: Bench, kind: str, size: int, key: str, rows: int) -> TimedQuery:
    home = bench.directory / f"{kind}-{size}"
    return godwit_count(bench, home, key, rows, name=f"{size:,} keys", preload=size)


def _numbers(turn: Turn) -> list[int]:
    return [epoch.number for epoch in turn.epochs]


def _median(turns: Sequence[Turn]) -> float:
    return statistics.median(second for turn in turns for second in turn.seconds)
