"""Tables that are files: tasks write them, and one commit of the driver names those that count."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import godwit as gw
from godwit.spark.sinks import lake_sink
from godwit.spark.sinks.lake_sink import File, LakeSink, Writer
from tests.support.arrow_outputs import outputs, started

COLUMNS = "k string, n bigint"
SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64()})


@dataclass
class Lake:
    """A sink of a kind, and what its table has and names."""

    directory: Path
    sink: Callable[[], LakeSink]
    rows: Callable[[], list[int]]
    named: Callable[[], set[str]]

    def files(self) -> set[str]:
        """All data files that there are, whoever names them."""
        return {str(path) for path in self.directory.rglob("*.parquet")}


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    def start(sink: gw.Sink) -> LakeSink:
        ready = started(sink, COLUMNS, tmp_path)
        assert isinstance(ready, LakeSink)
        return ready

    if request.param == "delta":
        path = tmp_path / "a tablé"
        return Lake(
            path,
            lambda: start(gw.delta(str(path))),
            lambda: sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist()),
            lambda: {_path(uri) for uri in DeltaTable(path).file_uris()},
        )
    path = tmp_path / "lake"
    about = {"type": "sql", "uri": f"sqlite:///{tmp_path}/db", "warehouse": f"file://{path}"}
    table = load_catalog("lake", **about).load_table
    return Lake(
        path,
        lambda: start(gw.iceberg("ns.counts", catalog="lake", properties=about)),
        lambda: sorted(table("ns.counts").scan().to_arrow()["n"].to_pylist()),
        lambda: {_path(one.file.file_path) for one in table("ns.counts").scan().plan_files()},
    )


def _path(uri: str) -> str:
    return unquote(urlparse(uri).path)


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": f"k{n}", "n": n} for n in values], SCHEMA)


def task(writer: Writer, batches: Iterable[pa.RecordBatch]) -> list[File]:
    """What a task does in a process of its own."""
    sent = pickle.loads(pickle.dumps(writer))
    (told,) = lake_sink._in_task(sent, "the table", batches)
    return [pickle.loads(file) for file in told["file"].to_pylist()]


def test_a_row_is_there_once_however_often_tasks_are_tried(lake: Lake) -> None:
    """Files of attempts that died, or came too late, are named by nobody."""

    def dying() -> Iterator[pa.RecordBatch]:
        yield batch(3)
        raise InterruptedError

    def write(writer: Writer) -> list[File]:
        task(writer, [batch(1, 2)])
        with pytest.raises(RuntimeError, match=r"(?s)cannot write to the table.*InterruptedError"):
            task(writer, dying())
        kept = task(writer, [batch(1, 2)]) + task(writer, [batch(), batch(3)])
        assert task(writer, [batch()]) == []
        assert writer.missing(kept) == []
        return kept

    lake.sink().put(0, "q/0/1", write)
    assert lake.rows() == [1, 2, 3]
    assert len(lake.named()) == 2
    assert lake.named() < lake.files()


def test_a_driver_that_dies_between_files_and_commit(lake: Lake) -> None:
    """It leaves files that nobody names; the next one writes its own."""

    def die(writer: Writer) -> list[File]:
        task(writer, [batch(1, 2)])
        raise InterruptedError

    lake.sink().take(outputs(0, COLUMNS, ("a", 7)), "q/0/1")
    with pytest.raises(InterruptedError):
        lake.sink().put(1, "q/1/1", die)
    assert lake.rows() == [7]
    left = lake.files() - lake.named()
    assert left
    lake.sink().put(1, "q/1/1", lambda writer: task(writer, [batch(1, 2)]))
    assert lake.rows() == [1, 2, 7]
    assert not left & lake.named()


def test_a_commit_that_is_there_is_known_before_a_file_is_written(lake: Lake) -> None:
    lake.sink().put(0, "q/0/1", lambda writer: task(writer, [batch(1)]))

    def never(writer: Writer) -> list[File]:
        raise AssertionError("it is there")

    lake.sink().put(0, "q/0/1", never)
    assert lake.rows() == [1]


def test_a_file_that_the_driver_does_not_find(lake: Lake) -> None:
    """An executor may have written it to a disk of its own."""
    found: list[str] = []

    def write(writer: Writer) -> list[File]:
        before = lake.files()
        files = task(writer, [batch(1)])
        (name,) = lake.files() - before
        whole = Path(name).read_bytes()
        Path(name).write_bytes(whole[:-1])
        found.extend(writer.missing(files))
        Path(name).unlink()
        found.extend(writer.missing(files))
        return []

    lake.sink().put(0, "q/0/1", write)
    assert len(found) == 2


def test_no_error_and_no_repr_tells_a_credential(tmp_path: Path) -> None:
    """They travel to tasks."""

    def write(writer: Writer) -> list[File]:
        assert "hush" not in f"{writer!r}"

        def failing() -> Iterator[pa.RecordBatch]:
            yield batch(1)
            raise OSError("refused hush")

        with pytest.raises(RuntimeError, match=r"OSError: refused \*\*\*") as told:
            task(writer, failing())
        assert told.value.__suppress_context__
        return []

    sink = gw.delta(str(tmp_path / "table"), storage_options={"AWS_SECRET_ACCESS_KEY": "hush"})
    ready = started(sink, COLUMNS, tmp_path)
    assert isinstance(ready, LakeSink)
    ready.put(0, "q/0/1", write)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/db",
        "warehouse": f"file://{tmp_path}",
        "s3.secret-access-key": "hush",
    }
    sink = gw.iceberg("ns.counts", catalog="lake", properties=properties)
    ready = started(sink, COLUMNS, tmp_path)
    assert isinstance(ready, LakeSink)
    ready.put(0, "q/0/1", write)
