"""State files: what is written is read back, and no damage goes unnoticed or unnamed."""

import itertools
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import DamagedFileError, IncompatibleError
from godwit.model.files import FileRef, WrittenFile
from godwit.model.ids import Epoch, WorkerId
from godwit.model.routing import SEGMENTS
from godwit.state import file as state_file
from godwit.state.file import (
    METADATA,
    Kind,
    StateFile,
    gather_segments,
    parts,
    write,
)
from godwit.state.run import Run, segment_of, segment_offsets
from godwit.state.table import TableSpec
from godwit.storage.local import LocalStore

SPEC = TableSpec(
    "counts",
    key=pa.schema([("word", pa.string())]),
    sub=pa.schema([]),
    value=pa.schema([("n", pa.int64())]),
)
NAME = "state/words/3-1.arrow"

# Every kind of column that state can have, with values for it. Keys and values may be null.
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "string": (pa.string(), st.text(max_size=8)),
    "binary": (pa.binary(), st.binary(max_size=8)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    ),
    "decimal": (
        pa.decimal128(20, 4),
        st.integers(-(10**19), 10**19).map(lambda n: n / Decimal(10**4)),
    ),
    "longs": (
        pa.list_(pa.field("element", pa.int64())),
        st.lists(st.none() | st.integers(-9, 9), max_size=3),
    ),
    "texts": (
        pa.list_(pa.list_(pa.string())),
        st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=2),
    ),
    "struct": (
        pa.struct([("day", pa.date32()), ("price", pa.float32())]),
        st.fixed_dictionaries(
            {"day": st.none() | st.just(date(2024, 2, 29)), "price": st.just(1.5)}
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.lists(st.tuples(st.text(max_size=2), st.integers(-9, 9)), max_size=2),
    ),
}
KEYS = sorted(COLUMNS.keys() - {"double", "longs", "texts", "struct", "map"})


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSpec, pa.Table]:
    """A table of any columns, and rows of it."""
    key = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
    value = draw(st.lists(st.sampled_from(sorted(COLUMNS)), max_size=4, unique=True))
    spec = TableSpec(
        "any",
        key=pa.schema([(f"k_{name}", COLUMNS[name][0]) for name in key]),
        sub=pa.schema([]),
        value=pa.schema([(f"v_{name}", COLUMNS[name][0]) for name in value]),
    )
    hashes = sorted(draw(st.lists(st.integers(0, 2**64 - 1), max_size=12)))
    columns = [pa.array(hashes, pa.uint64()), pa.array([0] * len(hashes), pa.int8())]
    for name in (*key, *value):
        kind, values = COLUMNS[name]
        cells = st.lists(st.none() | values, min_size=len(hashes), max_size=len(hashes))
        columns.append(pa.array(draw(cells), kind))
    return spec, pa.table(columns, schema=spec.schema)


def rows_of(hashes: list[int]) -> pa.Table:
    words = [None if h % 7 == 3 else f"word-{h}" for h in hashes]
    return pa.table([hashes, [0] * len(hashes), words, range(len(hashes))], schema=SPEC.schema)


def put(
    location: Path, rows: pa.Table, spec: TableSpec = SPEC, kind: Kind = "delta"
) -> WrittenFile:
    files = LocalStore(location)
    return write(
        files, NAME, spec, rows, operator="words", epoch=Epoch(3), worker=WorkerId(1), kind=kind
    )


def read(path: Path, spec: TableSpec, ref: FileRef | None = None, **options: Any) -> StateFile:
    return state_file.read(LocalStore(path.parent), path.name, spec, ref, **options)


def verify(path: Path, ref: FileRef) -> None:
    state_file.verify(LocalStore(Path(str(path).removesuffix(ref.name))), ref)


@contextmanager
def directory() -> Iterator[Path]:
    """A fresh directory for each example of hypothesis."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, FileRef]:
    return tmp_path / NAME, put(tmp_path, rows_of([i << 54 for i in range(1000)])).ref


def message(path: Path, ref: FileRef | None = None, spec: TableSpec = SPEC) -> str:
    with pytest.raises(DamagedFileError) as caught:
        read(path, spec, ref)
    assert caught.value.path == str(path)
    return caught.value.reason


# -- round trips


@given(tables())
def test_what_is_written_is_read_back(table: tuple[TableSpec, pa.Table]) -> None:
    spec, rows = table
    with directory() as location:
        result = put(location, rows, spec, "merge")
        file = read(location / NAME, spec, result.ref, operator="words")
        assert file.whole().rows.equals(rows)
        assert file.whole().rows.schema.equals(spec.schema, check_metadata=True)
        segments = [file.segment(segment) for segment in range(SEGMENTS)]
        assert pa.concat_tables(run.rows for run in segments).equals(rows)
        assert tuple(len(run) for run in segments) == result.segment_rows
        for number, run in enumerate(segments):
            assert set(segment_of(run.hash).tolist()) <= {number}


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(0, 300))
def test_parts_end_with_segments_and_are_no_larger_than_they_may_be(
    hashes: list[int], limit: int
) -> None:
    rows = rows_of(sorted(hashes))
    with patch.object(state_file, "PART_BYTES", limit):
        cut = parts(rows)
    assert pa.concat_tables(cut) == rows
    segments = [set(segment_of(Run.of(part).hash).tolist()) for part in cut]
    assert sum(map(len, segments)) == len(set.union(*segments))
    most = limit * rows.num_rows / rows.nbytes
    assert all(part.num_rows <= most or len(s) == 1 for part, s in zip(cut, segments, strict=True))


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(0, 300))
def test_segments_are_gathered_into_parts(hashes: list[int], limit: int) -> None:
    run = Run.of(rows_of(sorted(hashes)))
    borders = segment_offsets(run.hash).tolist()
    segments = [run.slice(*ends).rows for ends in itertools.pairwise(borders)]
    with patch.object(state_file, "PART_BYTES", limit):
        files = list(gather_segments(segments))
    assert pa.concat_tables([run.rows.slice(0, 0), *files]) == run.rows
    found = [len(set(segment_of(Run.of(file).hash).tolist())) for file in files]
    assert sum(found) == sum(segment.num_rows > 0 for segment in segments)
    assert all(file.nbytes <= limit or n == 1 for file, n in zip(files, found, strict=True))


@given(tables())
def test_bytes_and_checksum_are_those_of_the_file(table: tuple[TableSpec, pa.Table]) -> None:
    spec, rows = table
    with directory() as location:
        ref = put(location, rows, spec).ref
        content = (location / NAME).read_bytes()
        assert (ref.bytes, ref.crc) == (len(content), zlib.crc32(content))
        verify(location / NAME, ref)


def test_metadata_says_who_wrote_the_file(written: tuple[Path, FileRef]) -> None:
    path, ref = written
    meta = read(path, SPEC, ref).meta
    assert (meta.operator, meta.table, meta.epoch, meta.worker, meta.kind) == (
        "words",
        "counts",
        3,
        1,
        "delta",
    )
    assert ref == FileRef(NAME, 1000, path.stat().st_size, zlib.crc32(path.read_bytes()))


def test_rows_are_mapped_and_outlive_the_file(written: tuple[Path, FileRef]) -> None:
    path, ref = written
    before, descriptors = pa.total_allocated_bytes(), len(os.listdir("/proc/self/fd"))
    file = read(path, SPEC, ref)
    path.unlink()
    assert pa.total_allocated_bytes() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert file.whole().rows.equals(rows_of([i << 54 for i in range(1000)]))


def test_many_chunks_become_one_batch(tmp_path: Path) -> None:
    ref = put(tmp_path, pa.concat_tables([rows_of([1, 2]), rows_of([3, 2**64 - 1])])).ref
    assert read(tmp_path / NAME, SPEC, ref).whole().hash.tolist() == [1, 2, 3, 2**64 - 1]


# -- writing


def test_rows_out_of_order_or_of_other_columns_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not in the order of their hash"):
        put(tmp_path, rows_of([2**63, 1]))
    with pytest.raises(ValueError, match="has the columns"):
        put(tmp_path, rows_of([1]).drop_columns(["n"]))
    wide = rows_of([1])
    with pytest.raises(ValueError, match="has the columns"):
        put(tmp_path, wide.set_column(3, "n", wide["n"].cast(pa.int32())))
    assert not list(tmp_path.rglob("*"))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path, rows_of([1]))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# -- schemas that differ


def with_value(*fields: pa.Field) -> TableSpec:
    return replace(SPEC, value=pa.schema(fields))


@pytest.mark.parametrize("position", [0, 1])
def test_an_added_nullable_value_is_null(position: int, written: tuple[Path, FileRef]) -> None:
    path, ref = written
    fields = [pa.field("n", pa.int64())]
    fields.insert(position, pa.field("prices", pa.list_(pa.int64())))
    spec = with_value(*fields)
    file = read(path, spec, ref)
    for run in (file.whole(), file.segment(63), file.segment(0)):
        assert run.rows.schema.equals(spec.schema)
        assert run.rows["prices"].null_count == len(run)
        assert run.rows["n"].null_count == 0
        assert all(column.num_chunks == 1 for column in run.rows.columns)
    assert file.whole().rows["n"].to_pylist() == list(range(1000))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (with_value(), "has a column 'n', which is gone"),
        (with_value(pa.field("n", pa.int32())), "column 'n' of table 'counts' is int64 in file"),
        (
            with_value(pa.field("n", pa.int64()), pa.field("m", pa.int64(), nullable=False)),
            r"lacks the columns \['m'\]",
        ),
        (
            replace(SPEC, key=pa.schema([("word", pa.string()), ("site", pa.string())])),
            r"lacks the columns \['site'\]",
        ),
    ],
)
def test_other_differences_are_refused_by_name(
    spec: TableSpec, reason: str, written: tuple[Path, FileRef]
) -> None:
    path, ref = written
    with pytest.raises(IncompatibleError, match=reason) as caught:
        read(path, spec, ref)
    assert NAME in str(caught.value)
    assert caught.value.operator == "words"


# -- damage


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ref = FileRef(NAME, 1, 1, 1)
    assert "the file is missing; restore it" in message(tmp_path / NAME, ref)
    with pytest.raises(DamagedFileError, match="the file is missing"):
        verify(tmp_path / NAME, ref)


@given(st.data())
def test_a_truncated_file_is_found(data: st.DataObject) -> None:
    with directory() as location:
        ref = put(location, rows_of([i << 58 for i in range(64)])).ref
        path = location / NAME
        size = data.draw(st.integers(0, ref.bytes - 1))
        os.truncate(path, size)
        assert f"it has {size} bytes, not {ref.bytes}" in message(path, ref)
        assert "restore it" in message(path)  # also without knowing how long it should be
        with pytest.raises(DamagedFileError, match="bytes, not"):
            verify(path, ref)


@given(st.data())
def test_a_flipped_bit_is_found_by_its_checksum(data: st.DataObject) -> None:
    with directory() as location:
        ref = put(location, rows_of([i << 58 for i in range(64)])).ref
        path = location / NAME
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, ref.bytes - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match="its checksum is"):
            verify(path, ref)
        with suppress(DamagedFileError, IncompatibleError):
            read(path, SPEC, ref)  # may not notice, but raises no errors of others


@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda b: b"ARROW1\0\0" + b + b"ARROW1"))
def test_garbage_is_refused(content: bytes) -> None:
    with directory() as location:
        path = location / "garbage.arrow"
        path.write_bytes(content)
        assert "cannot be read as an Arrow file" in message(path)


def rewrite(path: Path, metadata: str | None, batches: int = 1) -> None:
    """An Arrow file that is whole, but not what Godwit would write."""
    schema = SPEC.schema if metadata is None else SPEC.schema.with_metadata({METADATA: metadata})
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(path), schema) as writer:
        for _ in range(batches):
            writer.write_table(rows_of([1]).replace_schema_metadata(schema.metadata))


OFFSETS = [0] + [1] * SEGMENTS
META = (
    '{"format": 1, "operator": "words", "table": "counts", "epoch": 3, "worker": 1,'
    f' "kind": "delta", "offsets": {OFFSETS}}}'
)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (None, "it is not a state file of Godwit"),
        ("[]", "it is not a state file of Godwit"),
        ("{", "it is not a state file of Godwit"),
        (META.replace('"format": 1', '"format": 2'), "written by a newer version of Godwit"),
        ('{"format": 2}', "written by a newer version of Godwit"),
        ('{"format": 1}', "its metadata is not that of a state file"),
        (META.replace("delta", "other"), "its metadata is not that of a state file"),
        (META.replace(str(OFFSETS), "[0, 1]"), "its metadata is not that of a state file"),
        (META.replace("[0, 1,", "[0, 2,"), "its metadata is not that of a state file"),
        (META.replace(str(OFFSETS), str([0] * 65)), "its number of rows, 1, contradicts"),
        (META.replace("counts", "others"), "it belongs to operator 'words', table 'others'"),
    ],
)
def test_foreign_newer_and_contradictory_files_are_refused(
    metadata: str | None, reason: str, tmp_path: Path
) -> None:
    rewrite(tmp_path / NAME, META)
    assert len(read(tmp_path / NAME, SPEC)) == 1
    rewrite(tmp_path / NAME, metadata)
    assert reason in message(tmp_path / NAME)


def test_several_batches_are_refused(tmp_path: Path) -> None:
    rewrite(tmp_path / NAME, META, batches=2)
    assert "it has 2 record batches, not 1" in message(tmp_path / NAME)


def test_a_file_of_another_receipt_or_operator_is_refused(written: tuple[Path, FileRef]) -> None:
    path, ref = written
    assert "its number of rows, 1000, contradicts" in message(path, replace(ref, rows=999))
    with pytest.raises(DamagedFileError, match="it belongs to operator 'words'"):
        read(path, SPEC, ref, operator="others")


def test_a_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in message(tmp_path)
    with pytest.raises(DamagedFileError, match="cannot be read"):
        verify(tmp_path, FileRef(tmp_path.name, 1, 1, 1))


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    ref = put(tmp_path, rows_of([])).ref
    file: StateFile = read(tmp_path / NAME, SPEC, ref)
    assert len(file) == len(file.whole()) == len(file.segment(63)) == 0
