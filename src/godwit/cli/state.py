"""`godwit state CHECKPOINT OPERATOR`: look up a key, or export all."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from godwit.cli.command import add_command
from godwit.cli.output import note, print_json, print_table
from godwit.errors import ConfigError
from godwit.inspect.snapshot import Snapshot
from godwit.model.hashing import hash_rows
from godwit.model.routing import SEGMENTS
from godwit.model.text import plural
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit state /data/checkpoints/counts counts --key heron
  godwit state /data/checkpoints/orders totals --key 17 --key EUR --json
  godwit state /data/checkpoints/counts counts --export counts.parquet

A key of several columns is given by several --key, in the order of the operator's key; null as
--null-key. A timestamp is written in UTC, as "2026-05-01 12:30:00Z", and one without a time zone as
"2026-05-01 12:30:00". Export writes .parquet, .csv or .jsonl.
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "state",
        run,
        help="look up a key in an operator's state, or export the state",
        description="Read committed state; a running query is not disturbed.",
        examples=EXAMPLES,
    )
    parser.add_argument("operator", metavar="OPERATOR")
    parser.add_argument("--key", action="append", dest="keys", help="a column of the key")
    parser.add_argument(
        "--null-key", action="append_const", const=None, dest="keys", help="a null in the key"
    )
    parser.add_argument("--epoch", type=int, help="a retained epoch; default: the newest")
    parser.add_argument("--table", help="needed if the operator has several")
    parser.add_argument("--export", metavar="FILE", help="write all rows there; it must not exist")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.keys is None) == (arguments.export is None):
        raise ConfigError("give --key to look a key up, or --export to write all rows")
    snapshot = Snapshot.open(
        open_store(arguments.checkpoint),
        arguments.operator,
        table=arguments.table,
        epoch=arguments.epoch,
    )
    if arguments.export:
        rows = _export(snapshot, Path(arguments.export))
        note(f"{arguments.export}: {plural(rows, 'row')} of epoch {snapshot.epoch}")
        return 0
    found = _told(look_up(snapshot, arguments.keys))
    if arguments.json:
        print_json(json.loads(json.dumps(found.to_pylist(), default=str)))
    elif found.num_rows:
        print_table(found.column_names, [[*map(_cell, row.values())] for row in found.to_pylist()])
    else:
        note(f"no such key in epoch {snapshot.epoch}")
    return 0 if found.num_rows else 1


def look_up(snapshot: Snapshot, texts: Sequence[str | None]) -> pa.Table:
    """The rows of one key, whose columns are given as text; reads one segment."""
    key = snapshot.spec.key
    if len(texts) != len(key):
        raise ConfigError(
            f"the key has {plural(len(key), 'column')} ({', '.join(key.names)}), and {len(texts)} "
            "were given"
        )
    wanted = pa.table([_column(text, field) for text, field in zip(texts, key, strict=True)], key)
    (hash,) = hash_rows(wanted)
    rows = snapshot.segment(int(hash >> np.uint64(64 - SEGMENTS.bit_length() + 1)))
    same = np.ones(rows.num_rows, np.bool_)
    for name in key.names:
        value = wanted[name][0]
        match = pc.equal(rows[name], value) if value.is_valid else pc.is_null(rows[name])
        same &= match.fill_null(False).to_numpy()
    return rows.filter(pa.array(same))


def _column(text: str | None, field: pa.Field) -> pa.Array:
    try:
        return pa.array([text], pa.string()).cast(field.type)
    except (pa.ArrowException, ValueError):
        raise ConfigError(f"key column '{field.name}' is {field.type}, not '{text}'") from None


def _told(rows: pa.Table) -> pa.Table:
    """Times as text, in the form that CSV has them in."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(i, field.name, rows[i].cast(pa.string()))
    return rows


def _cell(value: Any) -> str:
    """A value as a table shows it: whatever could be taken for another one is quoted.

    >>> [_cell(value) for value in (1234567, None, "null", "", "-", " a", "heron")]
    ['1234567', 'null', '"null"', '""', '-', '" a"', 'heron']
    """
    if value is None:
        return "null"
    text = str(value)
    if isinstance(value, str) and (text in ("", "null") or text.split() != text.split(" ")):
        return json.dumps(text, ensure_ascii=False)
    return text


def _export(snapshot: Snapshot, target: Path) -> int:
    writers = {".parquet": _to_parquet, ".csv": _to_csv, ".jsonl": _to_jsonl}
    if target.suffix not in writers:
        raise ConfigError(f"{target}: name a file that ends in {', '.join(writers)}")
    if target.suffix == ".csv":
        for field in snapshot.schema:
            if pa.types.is_nested(field.type):
                raise ConfigError(
                    f"column '{field.name}' is {field.type}, which CSV cannot hold: export to "
                    ".parquet or .jsonl"
                )
    with target.open("xb") as file:
        try:
            return sum(writers[target.suffix](file, snapshot.schema, snapshot.read()))
        except BaseException:
            target.unlink()
            raise


def _to_parquet(file: Any, schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[int]:
    with pq.ParquetWriter(file, schema) as writer:
        for rows in tables:
            writer.write_table(rows)
            yield rows.num_rows


def _to_csv(file: Any, schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[int]:
    with csv.CSVWriter(file, schema) as writer:
        for rows in tables:
            writer.write_table(rows)
            yield rows.num_rows


def _to_jsonl(file: Any, schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[int]:
    for rows in tables:
        for row in _told(rows).to_pylist():
            file.write(json.dumps(row, default=str).encode() + b"\n")
        yield rows.num_rows
