"""The rows that an operator puts out in an epoch, as files that Spark can read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from godwit.model.files import FileRef
from godwit.state.file import Summing, verified
from godwit.storage.store import Store


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Receipted files of outputs in the store of a checkpoint; it travels to tasks."""

    store: Store
    refs: tuple[FileRef, ...]

    @property
    def rows(self) -> int:
        return sum(ref.rows for ref in self.refs)

    @property
    def bytes(self) -> int:
        return sum(ref.bytes for ref in self.refs)

    @property
    def paths(self) -> list[Path] | None:
        """Where all of them are on this machine; None if the store is elsewhere."""
        paths = [self.store.local_path(ref.name) for ref in self.refs]
        here = [path for path in paths if path is not None]
        return here if len(here) == len(paths) else None

    def batches(self, numbers: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of these files by their numbers, or of all; raises DamagedFileError before the
        first row of one whose bytes are not those that were receipted."""
        for ref in self.refs if numbers is None else map(self.refs.__getitem__, numbers):
            with pq.ParquetFile(pa.BufferReader(verified(self.store, ref))) as file:
                yield from file.iter_batches()


def write(store: Store, name: str, rows: pa.Table) -> FileRef:
    """Write rows durably under a name that nobody else uses."""
    with store.write(name) as target:
        sink = Summing(target)
        with pa.PythonFile(sink, "w") as output:
            pq.write_table(rows, output, compression="none", use_dictionary=False)
    return FileRef(name, rows.num_rows, sink.bytes, sink.crc)
