"""What a story must come to, by its model, compared with all that is there."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.log import spark_log
from godwit.log.history import History
from godwit.storage.local import LocalStore
from tests.support import postgres
from tests.support.counting_workloads import Row, in_order, tabulate
from tests.support.kills.graph import SOURCES, End, GraphModel, Records, lake, sink_key
from tests.support.kills.story import Story

EPOCH = "epoch"
Tuples = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Truth:
    """What came of a story: all of its rows were right."""

    epochs: int
    rows: Mapping[str, int]  # by sink


def check(story: Story, home: Path, dsn: str | None) -> Truth:
    """Nothing is lost and nothing is there twice, in any sink and any state; all is sound."""
    model, checkpoint = GraphModel(story.graph), home / "checkpoint"
    inputs = list(_inputs(story, home))
    log = LocalStore(checkpoint / "spark")
    assert spark_log.newest_commit(log) == len(inputs) - 1
    given: dict[str, list[Row]] = {end.name: [] for end in story.graph.ends}
    for epoch, records in enumerate(inputs):
        decided = _watermarks(checkpoint, epoch) if story.graph.idle else None
        for name, rows in model.feed(records, decided).items():
            given[name] += [row | {EPOCH: epoch} for row in rows]
    for end in story.graph.ends:
        expected, found = _expected(story, end, given[end.name]), _found(end, home, dsn)
        missing, extra = _tuples(expected) - _tuples(found), _tuples(found) - _tuples(expected)
        assert not missing, f"{end} lacks {missing}, and has {extra}"
        assert not extra, f"{end} has {extra}"
    for (operator, table), rows in model.state().items():
        parts = Snapshot.open(checkpoint, operator, table=table).read()
        kept = tabulate([row for part in parts for row in part.to_pylist()])
        assert kept == in_order(rows), f"state {table} of {operator}"
    assert verify(checkpoint).findings == []
    return Truth(len(inputs), {name: len(rows) for name, rows in given.items()})


def next_epoch(home: Path) -> int:
    """The first epoch that has not begun."""
    return max(History(home / "checkpoint").intents(), default=-1) + 1


def _watermarks(checkpoint: Path, epoch: int) -> dict[str, datetime]:
    """What the intent of an epoch says, with idle sources."""
    intent = History(checkpoint).intent(epoch)
    assert intent is not None
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    return {name: begin + timedelta(microseconds=at) for name, at in intent.watermarks.items()}


# -- the input of each epoch -----------------------------------------------------------------------


def _inputs(story: Story, home: Path) -> Iterator[Records]:
    """What Spark's log says of each epoch. Each file is there once, in its turn."""
    spark = home / "checkpoint" / "spark"
    log = LocalStore(spark)
    places = {source: _place(spark, home / source) for source in story.graph.sources}
    files = {source: story.files(source, len(story.lives)) for source in SOURCES}
    taken = dict.fromkeys(story.graph.sources, 0)
    epochs = spark_log.epochs(log, spark_log.OFFSETS)
    assert epochs == list(range(len(epochs)))
    for epoch in epochs:
        offsets = spark_log.source_offsets(log, epoch)
        records: dict[str, list[Row]] = {source: [] for source in SOURCES}
        for source, place in places.items():
            told = "-" if place is None else offsets[place]
            until = taken[source] if told == "-" else json.loads(told)["logOffset"] + 1
            records[source] = [r for rows in files[source][taken[source] : until] for r in rows]
            taken[source] = until
        yield records
    assert taken == {source: len(files[source]) for source in story.graph.sources}


def _place(spark: Path, directory: Path) -> int | None:
    """The number under which Spark's log has the source that reads a directory; None if it has
    read nothing of it."""
    for place in (spark / "sources").iterdir():
        logged = "".join(path.read_text() for path in place.iterdir() if path.name[0] != ".")
        if f"{directory}/" in logged:
            return int(place.name)
    return None


# -- sinks -----------------------------------------------------------------------------------------


def _expected(story: Story, end: End, given: Iterable[Row]) -> list[Row]:
    """All rows; or the newest of each key, if the sink has one."""
    key = sink_key(story.graph, end)
    if not key:
        return list(given)
    return list({tuple(row[column] for column in key): row for row in given}.values())


def _found(end: End, home: Path, dsn: str | None) -> list[Row]:
    place = home / end.name
    match end.kind.split()[0]:
        case "files":
            return list(_in_files(place))
        case "iceberg":
            table = load_catalog("lake", **lake(home, end)).load_table(f"ns.{end.name}")
            rows = table.scan().to_arrow()
        case "postgres" if dsn is not None:
            rows = postgres.table(dsn, f'SELECT * FROM "{end.name}"')
        case _:
            rows = DeltaTable(place).to_pyarrow_table()
    return list(rows.to_pylist())


def _in_files(place: Path) -> Iterator[Row]:
    for file in place.glob("epoch=*/*.parquet"):
        epoch = int(file.parent.name.removeprefix("epoch="))
        # What Spark writes itself has times in an old form, without their zone.
        for row in pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read().to_pylist():
            yield row | {EPOCH: epoch}


def _tuples(rows: Iterable[Row]) -> Tuples:
    return Counter(tuple((name, _moment(row[name])) for name in sorted(row)) for row in rows)


def _moment(value: Any) -> Any:
    is_bare = isinstance(value, datetime) and value.tzinfo is None
    return value.replace(tzinfo=UTC) if is_bare else value
