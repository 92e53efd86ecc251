"""The one file format of state: an Arrow file of rows in hash order with an index of segments.

Deltas and merged runs look alike: an uncompressed Arrow IPC file with exactly one record batch, so
that a reader maps it into memory and a segment is a slice. The schema's metadata says who wrote it.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa

from godwit.errors import DamagedFileError, GodwitError, IncompatibleError
from godwit.model.files import FileRef, WrittenFile
from godwit.model.ids import Epoch, WorkerId
from godwit.model.routing import SEGMENTS
from godwit.state.run import Run, segment_offsets
from godwit.state.table import TableSpec
from godwit.storage.store import Store

FORMAT: Final = 1
PART_BYTES: Final = 8 << 20
METADATA: Final = b"godwit"

Kind = Literal["delta", "merge"]

# Trouble of the system and not of the file: the task fails, and its retry may succeed.
_PASSING = (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM)
_ADVICE: Final = "restore it from a backup of the checkpoint (`godwit verify` finds all such files)"


@dataclass(frozen=True, slots=True)
class Meta:
    """Who wrote a file, and the 65 row offsets of its segments."""

    operator: str
    table: str
    epoch: Epoch
    worker: WorkerId
    kind: Kind
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StateFile:
    """A mapped file, seen through `spec`: columns that were added since it was written are null.

    The rows stay in the page cache and stay readable when the file is deleted.
    """

    spec: TableSpec
    meta: Meta
    stored: Run  # the columns of the file, in the order of the spec

    def __len__(self) -> int:
        return len(self.stored)

    def whole(self) -> Run:
        """All rows."""
        return self._conform(self.stored)

    def segment(self, segment: int) -> Run:
        """The rows of one segment, without a copy."""
        start, stop = self.meta.offsets[segment : segment + 2]
        return self._conform(self.stored.slice(start, stop))

    def _conform(self, run: Run) -> Run:
        schema = self.spec.schema
        if run.rows.num_columns == len(schema):
            return run
        stored = dict(zip(run.rows.column_names, run.rows.columns, strict=True))
        columns = [
            stored[field.name] if field.name in stored else pa.nulls(len(run), field.type)
            for field in schema
        ]
        return Run(run.hash, pa.table(columns, schema=schema))


def parts(rows: pa.Table) -> list[pa.Table]:
    """Cut rows in hash order at borders of segments, into files of about `PART_BYTES` at most.

    A segment is not cut, however large. Whoever needs a segment fetches the files that have it, and
    so not much more than it needs.
    """
    run = Run.of(rows)
    offsets = segment_offsets(run.hash)
    limit = PART_BYTES * len(run) // max(1, run.rows.nbytes)
    borders = [0]
    for start, stop in itertools.pairwise(offsets.tolist()):
        if stop - borders[-1] > limit and start > borders[-1]:
            borders.append(start)
    return [run.rows.slice(a, b - a) for a, b in itertools.pairwise([*borders, len(run)])]


def gather_segments(segments: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Put the rows of one segment after the other together, into files as those of `parts`.

    Those of a large segment are given away before the next one is asked for.
    """
    waiting: list[pa.Table] = []
    size = 0
    for rows in filter(len, segments):
        if waiting and size + rows.nbytes > PART_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(rows)
        size += rows.nbytes
        if size > PART_BYTES:
            del rows
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


class Writable(Protocol):
    """Where a file can be written piece by piece: a store, or a cache before it."""

    def write(self, name: str) -> AbstractContextManager[BinaryIO]: ...


def write(
    files: Writable,
    name: str,
    spec: TableSpec,
    rows: pa.Table,
    *,
    operator: str,
    epoch: Epoch,
    worker: WorkerId,
    kind: Kind,
) -> WrittenFile:
    """Write `rows`, which are in hash order, under a name that no other attempt uses."""
    run = Run.of(rows)
    _check(spec, run)
    offsets = segment_offsets(run.hash)
    meta = Meta(operator, spec.name, epoch, worker, kind, tuple(offsets.tolist()))
    with files.write(name) as target:
        sink = Summing(target)
        _write_batch(sink, spec.schema, meta, run)
    ref = FileRef(name, len(run), sink.bytes, sink.crc)
    return WrittenFile(ref, tuple(np.diff(offsets).tolist()))


def read(
    files: Store,
    name: str,
    spec: TableSpec,
    ref: FileRef | None = None,
    *,
    operator: str | None = None,
) -> StateFile:
    """Map a file into memory, after checking what can be checked without reading its rows.

    Raises DamagedFileError when it is not the whole, readable file of this table (and of `ref` and
    `operator`, where given), IncompatibleError when its columns do not fit `spec`. Flipped bits in
    the rows are found by `verify` only.
    """
    path = files.address(name)
    try:
        meta, batch = _open(path, files.map(name), ref)
        if meta.table != spec.name or operator not in (None, meta.operator):
            raise _damaged(path, f"it belongs to operator '{meta.operator}', table '{meta.table}'")
        return StateFile(spec, meta, _stored(ref.name if ref else path, spec, meta, batch))
    except GodwitError:
        raise
    except FileNotFoundError:
        raise _damaged(path, "the file is missing") from None
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise
        raise _damaged(path, f"it cannot be read as an Arrow file ({error})") from error


def verify(files: Store, ref: FileRef) -> None:
    """Read every byte of a file; raise DamagedFileError when they are not those of `ref`."""
    for _ in verified_chunks(files, ref):
        pass


def verified(files: Store, ref: FileRef) -> pa.Buffer:
    """The bytes of a whole file; raises DamagedFileError when they are not those of `ref`."""
    path = files.address(ref.name)
    try:
        data = files.map(ref.name)
    except FileNotFoundError:
        raise _damaged(path, "the file is missing") from None
    _check_sum(path, ref, data.size, zlib.crc32(data))
    return data


def verified_chunks(files: Store, ref: FileRef) -> Iterator[memoryview]:
    """The bytes of a file, each chunk valid until the next; raises DamagedFileError at the end
    when they were not those of `ref`."""
    return checked(_chunks(files, ref.name), ref, files.address(ref.name))


def checked(chunks: Iterable[memoryview], ref: FileRef, path: str) -> Iterator[memoryview]:
    """The chunks; raises DamagedFileError at the end when they were not those of `ref`."""
    crc, size = 0, 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
        size += len(chunk)
        yield chunk
    _check_sum(path, ref, size, crc)


def _check_sum(path: str, ref: FileRef, size: int, crc: int) -> None:
    if size != ref.bytes:
        raise _wrong_size(path, size, ref)
    if crc != ref.crc:
        raise _damaged(path, f"its checksum is {crc:08x}, not {ref.crc:08x} as receipted")


class Summing(io.RawIOBase):
    """A sink that passes on what is written, and counts and sums it up."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.bytes = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._target.write(data)
        self.bytes += size
        self.crc = zlib.crc32(data, self.crc)
        return size


def _check(spec: TableSpec, run: Run) -> None:
    """Refuse rows that would make a file no reader could trust."""
    schema = run.rows.schema
    if schema.names != spec.schema.names or schema.types != spec.schema.types:
        raise ValueError(f"table '{spec.name}' has the columns\n{spec.schema}\nnot\n{schema}")
    if np.any(run.hash[1:] < run.hash[:-1]):
        raise ValueError(f"rows of table '{spec.name}' are not in the order of their hash")


def _write_batch(sink: Summing, schema: pa.Schema, meta: Meta, run: Run) -> None:
    fields = {name: getattr(meta, name) for name in Meta.__slots__}
    text = json.dumps({"format": FORMAT, **fields}, separators=(",", ":"))
    columns = [column.chunk(0) for column in run.rows.columns]
    with (
        pa.PythonFile(sink, "w") as output,
        pa.ipc.new_file(output, schema.with_metadata({METADATA: text})) as writer,
    ):
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _chunks(files: Store, name: str) -> Iterator[memoryview]:
    try:
        yield from files.chunks(name)
    except FileNotFoundError:
        raise _damaged(files.address(name), "the file is missing") from None
    except OSError as error:
        if error.errno in _PASSING:
            raise
        raise _damaged(files.address(name), f"it cannot be read ({error})") from error


def _open(path: str, mapped: pa.Buffer, ref: FileRef | None) -> tuple[Meta, pa.RecordBatch]:
    """Check the frame of a file: sizes and metadata.

    It is in a buffer, since of a file, Arrow would read the footer in another thread.
    """
    if ref is not None and mapped.size != ref.bytes:
        raise _wrong_size(path, mapped.size, ref)
    reader = pa.ipc.open_file(mapped)
    meta = _parse(path, reader.schema)
    if reader.num_record_batches != 1:
        raise _damaged(path, f"it has {reader.num_record_batches} record batches, not 1")
    batch = reader.get_batch(0)
    batch.validate()
    rows = batch.num_rows
    if meta.offsets[-1] != rows or (ref is not None and ref.rows != rows):
        raise _damaged(path, f"its number of rows, {rows}, contradicts its index or its receipt")
    return meta, batch


def _parse(path: str, schema: pa.Schema) -> Meta:
    """The metadata of a file, if this version of Godwit can read it."""
    try:
        data = json.loads((schema.metadata or {})[METADATA])
        version = int(data.pop("format"))
    except (KeyError, ValueError, TypeError, AttributeError):
        raise _damaged(path, "it is not a state file of Godwit") from None
    if version > FORMAT:
        raise DamagedFileError(
            path,
            f"written by a newer version of Godwit (format {version}, this one reads {FORMAT}); "
            "run this query with that version",
        )
    try:
        offsets = np.array(data["offsets"], np.int64)
        meta = Meta(**{**data, "offsets": tuple(offsets.tolist())})
        valid = (
            len(offsets) == SEGMENTS + 1
            and offsets[0] == 0
            and bool(np.all(np.diff(offsets) >= 0))
            and meta.kind in get_args(Kind)
        )
    except (KeyError, ValueError, TypeError, OverflowError):
        valid = False
    if not valid:
        raise _damaged(path, "its metadata is not that of a state file")
    return meta


def _stored(name: str, spec: TableSpec, meta: Meta, batch: pa.RecordBatch) -> Run:
    """The columns of a file in the order of `spec`, if they are those or lack only added ones."""
    if batch.schema.equals(spec.schema):
        return Run.of(pa.Table.from_batches([batch], schema=spec.schema))
    found = dict(zip(batch.schema.names, batch.schema.types, strict=True))
    added = {field.name for field in spec.value if field.nullable}
    for column, kind in found.items():
        if column not in spec.schema.names:
            raise IncompatibleError(
                meta.operator,
                f"file {name} of table '{spec.name}' has a column '{column}', which is gone",
            )
        if kind != (wanted := spec.schema.field(column).type):
            raise IncompatibleError(
                meta.operator,
                f"column '{column}' of table '{spec.name}' is {kind} in file {name}, not {wanted}",
            )
    if lacking := [n for n in spec.schema.names if n not in found and n not in added]:
        raise IncompatibleError(
            meta.operator,
            f"file {name} of table '{spec.name}' lacks the columns {lacking}; only nullable values "
            "can be added to existing state",
        )
    fields = [field for field in spec.schema if field.name in found]
    arrays = [batch.column(field.name) for field in fields]
    return Run.of(pa.table(arrays, schema=pa.schema(fields)))


def _damaged(path: str, reason: str) -> DamagedFileError:
    return DamagedFileError(path, f"{reason}; {_ADVICE}")


def _wrong_size(path: str, size: int, ref: FileRef) -> DamagedFileError:
    return _damaged(path, f"it has {size} bytes, not {ref.bytes} as receipted")
