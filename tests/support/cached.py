"""Files in a checkpoint for the tests of their cache, and a process that knows none of them."""

from pathlib import Path

import pyarrow as pa
import pytest

from godwit.model.files import FileRef
from godwit.model.ids import Epoch, WorkerId
from godwit.state import cache as module
from godwit.state.cache import FileCache
from godwit.state.file import write
from godwit.state.table import TableSpec
from godwit.storage.local import LocalStore

SPEC = TableSpec(
    "counts",
    key=pa.schema([("word", pa.int64())]),
    sub=pa.schema([]),
    value=pa.schema([("n", pa.int64())]),
)
PLENTY = 1 << 30


def rows_of(number: int, rows: int = 1000) -> pa.Table:
    """Rows that tell which file they are of."""
    numbers, step = [number] * rows, (1 << 64) // max(rows, 1024)
    hashes = [i * step for i in range(rows)]
    return pa.table([hashes, [0] * rows, numbers, numbers], SPEC.schema)


def put(location: Path, number: int, rows: int = 1000) -> FileRef:
    location.mkdir(parents=True, exist_ok=True)
    written = write(
        LocalStore(location, durable=False),
        f"state/words/{number}.arrow",
        SPEC,
        rows_of(number, rows),
        operator="words",
        epoch=Epoch(number),
        worker=WorkerId(0),
        kind="delta",
    )
    return written.ref


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def new_process(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A process's memory of its own, and a clock of it that a test moves itself."""
    clock = Clock()
    monkeypatch.setattr(module, "_opened", module._Opened(clock.monotonic))
    monkeypatch.setattr(module, "_usages", {})
    return clock


def forget() -> None:
    """What a new process of the executor would know."""
    module._opened._entries.clear()
    module._usages.clear()


def check(cache: FileCache, ref: FileRef) -> None:
    """The file is the one asked for."""
    run = cache.open(ref, SPEC).whole()
    assert run.rows.equals(rows_of(int(Path(ref.name).stem), ref.rows))
