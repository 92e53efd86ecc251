"""What the Iceberg sink writes, and what it refuses."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.transforms import BucketTransform
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

import godwit as gw
from godwit.errors import ConfigError
from godwit.spark.sinks.iceberg import IcebergSink
from tests.support.arrow_outputs import Row, outputs, started

COLUMNS = "k string, n bigint"


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    """Of a catalog in SQLite."""
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/db", "warehouse": f"file://{tmp_path}"}


@pytest.fixture
def catalog(properties: dict[str, str]) -> Catalog:
    return load_catalog("lake", **properties)


@pytest.fixture
def sink(properties: dict[str, str]) -> gw.Sink:
    return gw.iceberg("ns.counts", catalog="lake", properties=properties)


def made(catalog: Catalog, **columns: pa.DataType) -> None:
    catalog.create_namespace("ns")
    catalog.create_table("ns.counts", pa.schema(columns))


def table(catalog: Catalog, *columns: str) -> list[Row]:
    found = catalog.load_table("ns.counts").scan().to_arrow().select(columns).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_an_epoch_is_one_snapshot(catalog: Catalog, sink: gw.Sink, tmp_path: Path) -> None:
    ready = started(sink, COLUMNS, tmp_path)
    ready.take(outputs(0, COLUMNS, ("a", 1), ("b", 2)), "q/0/1")
    ready.take(outputs(1, COLUMNS), "q/1/1")
    ready.take(outputs(2, COLUMNS, ("a", 3)), "q/2/1")
    assert table(catalog, "k", "n", "epoch") == [("a", 1, 0), ("a", 3, 2), ("b", 2, 0)]
    snapshots = catalog.load_table("ns.counts").snapshots()
    assert [one.summary and one.summary["godwit.commit"] for one in snapshots] == ["q/0/1", "q/2/1"]


def test_a_commit_is_found_behind_those_of_others(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path
) -> None:
    ready = started(sink, COLUMNS, tmp_path)
    ready.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    other = catalog.load_table("ns.counts")
    for number in (7, 8):
        other.append(
            pa.Table.from_pylist(
                [{"k": "x", "n": number, "epoch": None}], other.schema().as_arrow()
            )
        )
    ready.take(outputs(0, COLUMNS, ("b", 9)), "other/0/1")
    started(sink, COLUMNS, tmp_path).take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(catalog, "k", "n") == [("a", 1), ("b", 9), ("x", 7), ("x", 8)]


def test_a_table_that_is_rolled_back_goes_on_from_there(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path
) -> None:
    """As one does after a restore of the checkpoint."""
    ready = started(sink, COLUMNS, tmp_path)
    ready.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    there = catalog.load_table("ns.counts").current_snapshot()
    ready.take(outputs(1, COLUMNS, ("b", 2)), "q/1/1")
    with pytest.raises(ConfigError, match="checkpoint was restored"):
        ready.take(outputs(1, COLUMNS, ("c", 3)), "q/1/2")
    assert there is not None
    catalog.load_table("ns.counts").manage_snapshots().rollback_to_snapshot(
        there.snapshot_id
    ).commit()
    ready.take(outputs(1, COLUMNS, ("c", 3)), "q/1/2")
    assert table(catalog, "k", "n", "epoch") == [("a", 1, 0), ("c", 3, 1)]


def test_two_drivers_that_deliver_the_same_commit_agree(
    catalog: Catalog, sink: gw.Sink, properties: dict[str, str], tmp_path: Path
) -> None:
    """The other one gets in between this one's look and its commit."""
    other = started(
        gw.iceberg("ns.counts", catalog="lake", properties=properties), COLUMNS, tmp_path
    )

    def overtake() -> None:
        other.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")

    ready = started(sink, COLUMNS, tmp_path)
    ready.take(outputs(0, COLUMNS, ("a", 1), meanwhile=overtake), "q/0/1")
    assert table(catalog, "k", "n") == [("a", 1)]


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_that_is_said_to_have_failed(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path, lands: bool
) -> None:
    """It may have landed: a catalog's client tries a request again when its answer was lost."""
    ready = started(sink, COLUMNS, tmp_path)
    ready.take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    really = SqlCatalog.commit_table
    said: list[Any] = []

    def commit(*given: Any) -> Any:
        if not said or lands:
            found = really(*given) if lands else None
            said.append(found)
            raise CommitFailedException("another commit was faster")
        return really(*given)

    with patch.object(SqlCatalog, "commit_table", commit):
        ready.take(outputs(1, COLUMNS, ("b", 2)), "q/1/1")
    assert len(said) == 1
    ready.take(outputs(2, COLUMNS, ("c", 3)), "q/2/1")
    assert table(catalog, "k", "n", "epoch") == [("a", 1, 0), ("b", 2, 1), ("c", 3, 2)]


def test_rows_of_another_writer_come_in_between(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path
) -> None:
    """Twice; then this one's are there once."""
    ready = started(sink, COLUMNS, tmp_path)
    writes: list[dict[str, Any]] = []

    def write() -> None:
        if len(writes) < 2:
            other = catalog.load_table("ns.counts")
            row = {"k": "x", "n": len(writes), "epoch": None}
            other.append(pa.Table.from_pylist([row], other.schema().as_arrow()))
            writes.append(row)

    def append(self: IcebergSink, *given: Any) -> None:
        write()
        really(self, *given)

    reads: list[int] = []
    really = IcebergSink.append
    with patch.object(IcebergSink, "append", append):
        mine = outputs(0, COLUMNS, ("a", 1), meanwhile=lambda: reads.append(1))
        ready.take(mine, "q/0/1")
    assert len(writes) == 2
    assert len(reads) == 1  # the files of the first attempt are those of the last
    assert table(catalog, "k", "n") == [("a", 1), ("x", 0), ("x", 1)]
    assert catalog.load_table("ns.counts").properties == {}


def test_a_table_that_is_partitioned_between_files_and_commit(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path
) -> None:
    """Another writer comes in as well; then the rows are written anew, as the table wants them."""
    ready = started(sink, COLUMNS, tmp_path)
    changes: list[int] = []

    def change() -> None:
        changes.append(1)
        if len(changes) == 1:
            catalog.load_table("ns.counts").update_spec().add_identity("k").commit()
            other = catalog.load_table("ns.counts")
            row = {"k": "x", "n": 0, "epoch": None}
            other.append(pa.Table.from_pylist([row], other.schema().as_arrow()))

    ready.take(outputs(0, COLUMNS, ("a", 1), ("b", 2), meanwhile=change), "q/0/1")
    assert len(changes) == 2
    assert table(catalog, "k", "n") == [("a", 1), ("b", 2), ("x", 0)]
    parts = [one.file.partition[0] for one in catalog.load_table("ns.counts").scan().plan_files()]
    assert sorted(parts) == ["a", "b", "x"]


def test_a_table_without_epochs_is_filled_without(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path
) -> None:
    """And columns that the output lacks are null."""
    made(catalog, n=pa.int64(), more=pa.string(), k=pa.string())
    started(sink, COLUMNS, tmp_path).take(outputs(0, COLUMNS, ("a", 1)), "q/0/1")
    assert table(catalog, "n", "more", "k") == [(1, None, "a")]


def test_a_table_may_be_partitioned(catalog: Catalog, sink: gw.Sink, tmp_path: Path) -> None:
    made(catalog, k=pa.string(), n=pa.int64(), epoch=pa.int64())
    catalog.load_table("ns.counts").update_spec().add_identity("k").commit()
    ready = started(sink, COLUMNS, tmp_path)
    ready.take(outputs(0, COLUMNS, ("a", 1), ("b", 2)), "q/0/1")
    assert table(catalog, "k", "n", "epoch") == [("a", 1, 0), ("b", 2, 0)]


def test_values_of_every_type_come_back(catalog: Catalog, sink: gw.Sink, tmp_path: Path) -> None:
    columns = (
        "b boolean, t tinyint, s smallint, i int, f float, d double, x binary, y date, "
        "z timestamp, zn timestamp_ntz, c decimal(10,2), l array<smallint>, m map<string,bigint>, "
        "r struct<a: tinyint, b: array<string>>"
    )
    row = {"a": 1, "b": ["x"]}
    ready = started(sink, columns, tmp_path)
    ready.take(outputs(0, columns, (True, 1, 2, *[None] * 8, [3], [("y", 4)], row)), "q/0/1")
    started(sink, columns, tmp_path)
    assert table(catalog, "b", "t", "s", "l", "m", "r") == [(True, 1, 2, [3], [("y", 4)], row)]


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({"k": pa.string()}, "no column 'n' of type int64"),
        ({"k": pa.string(), "n": pa.int32()}, "'n' with type int32, the output with type int64"),
        ({"k": pa.string(), "n": pa.int64(), "epoch": pa.string()}, "'epoch' with type large_str"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path, there: dict[str, Any], told: str
) -> None:
    made(catalog, **there)
    with pytest.raises(ConfigError, match=told):
        started(sink, COLUMNS, tmp_path)


def test_a_table_that_the_package_cannot_write_is_refused(
    catalog: Catalog, sink: gw.Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(catalog, k=pa.string(), n=pa.int64())
    there = catalog.load_table("ns.counts")
    there.update_spec().add_field("k", BucketTransform(4)).commit()
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    with pytest.raises(ConfigError, match=r"cannot be used: .*pyiceberg[-_]core"):
        started(sink, COLUMNS, tmp_path)
    there.update_spec().remove_field("k_bucket_4").commit()
    started(sink, COLUMNS, tmp_path)
    metadata = Path(urlparse(catalog.load_table("ns.counts").metadata_location).path)
    about = json.loads(metadata.read_bytes())
    metadata.write_text(json.dumps({**about, "format-version": 3, "next-row-id": 0}))
    with pytest.raises(ConfigError, match="format version 3, which PyIceberg reads but does not"):
        started(sink, COLUMNS, tmp_path)


def test_what_cannot_work_is_refused_at_the_start(
    sink: gw.Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="'d' has an unsupported type"):
        started(sink, StructType([StructField("d", DayTimeIntervalType())]), tmp_path)
    with pytest.raises(ConfigError, match="column 'Epoch'"):
        started(sink, "Epoch int", tmp_path)
    with pytest.raises(ConfigError, match=r"the Iceberg table ns\.counts cannot be used"):
        started(gw.iceberg("ns.counts", catalog="unknown"), COLUMNS, tmp_path)
    monkeypatch.setitem(sys.modules, "pyiceberg.io.pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'godwit\[iceberg\]'"):
        started(sink, COLUMNS, tmp_path)


def test_credentials_are_not_shown(tmp_path: Path) -> None:
    for uri in ("postgresql+psycopg2://godwit:hush@/db", "hush", "sqlite:////hush/db"):
        sink = gw.iceberg("ns.counts", properties={"type": "sql", "uri": uri})
        with pytest.raises(ConfigError, match="cannot be used") as told:
            started(sink, COLUMNS, tmp_path)
        assert "hush" not in f"{sink} {sink!r} {told.value}"
        assert told.value.__suppress_context__
