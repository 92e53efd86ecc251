"""The rows that an operator puts out in an epoch, as a file that Spark can read."""

import pyarrow as pa
import pyarrow.parquet as pq

from godwit.model.files import FileRef
from godwit.state.file import Summing
from godwit.storage.store import Store


def write(store: Store, name: str, rows: pa.Table) -> FileRef:
    """Write rows durably under a name that nobody else uses."""
    with store.write(name) as target:
        sink = Summing(target)
        with pa.PythonFile(sink, "w") as output:
            pq.write_table(rows, output, compression="none", use_dictionary=False)
    return FileRef(name, rows.num_rows, sink.bytes, sink.crc)
