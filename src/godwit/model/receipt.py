"""What a task returns: the files it wrote, or why it could not. Only receipted files exist."""

import base64
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from godwit.errors import GodwitError
from godwit.model.files import FileRef, WrittenFile
from godwit.model.ids import NO_EXECUTOR, ExecutorId, WorkerId
from godwit.model.loads import Loads
from godwit.model.manifest import WorkerStatistics
from godwit.model.store_requests import NO_REQUESTS, StoreRequests
from godwit.model.time import Clocks


@dataclass(frozen=True, slots=True)
class Receipt:
    """One attempt of one worker's epoch, whole: its state files by table, and its outputs."""

    worker: WorkerId
    records: int = 0
    loads: Loads | None = None  # of the records that were processed
    deltas: Mapping[str, Sequence[WrittenFile]] = field(default_factory=dict)
    merged: Mapping[str, Sequence[WrittenFile]] = field(default_factory=dict)
    outputs: FileRef | None = None
    late: int = 0  # records that came after their time had passed
    late_records: FileRef | None = None  # if they are kept
    clocks: Clocks = (None,)  # the greatest time of each input
    failure: GodwitError | None = None  # why there is nothing: it fails the query
    fetched: int = 0  # bytes read from the checkpoint, of need or ahead of it
    fetch_seconds: float = 0.0  # that this took, as part of what `seconds` has
    store_requests: StoreRequests = NO_REQUESTS  # to an object store
    ready: tuple[int, ...] = ()  # the segments to come of which all files are here
    seconds: Mapping[str, float] = field(default_factory=dict)
    executor: ExecutorId = NO_EXECUTOR

    @property
    def work_seconds(self) -> float:
        """What the epoch took in Python, without what was done ahead of need."""
        return sum(taken for part, taken in self.seconds.items() if part != "fetch")

    def changed(self, table: str) -> int:
        """How many rows of a table it changed."""
        return sum(file.ref.rows for file in self.deltas.get(table, ()))

    def to_text(self) -> str:
        return json.dumps(
            {
                "worker": self.worker,
                "records": self.records,
                "loads": self.loads and self.loads.to_text(),
                "deltas": _to_json(self.deltas),
                "merged": _to_json(self.merged),
                "outputs": self.outputs and self.outputs.to_json(),
                "late": self.late,
                "late_records": self.late_records and self.late_records.to_json(),
                "clocks": self.clocks,
                "failure": self.failure and base64.b64encode(pickle.dumps(self.failure)).decode(),
                "fetched": self.fetched,
                "fetch_seconds": self.fetch_seconds,
                "store_requests": self.store_requests.to_json(),
                "ready": self.ready,
                "seconds": self.seconds,
                "executor": self.executor,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> "Receipt":
        data = json.loads(text)
        return cls(
            worker=data["worker"],
            records=data["records"],
            loads=data["loads"] and Loads.from_text(data["loads"]),
            deltas=_from_json(data["deltas"]),
            merged=_from_json(data["merged"]),
            outputs=data["outputs"] and FileRef.from_json(data["outputs"]),
            late=data["late"],
            late_records=data["late_records"] and FileRef.from_json(data["late_records"]),
            clocks=tuple(data["clocks"]),
            failure=data["failure"] and pickle.loads(base64.b64decode(data["failure"])),
            fetched=data["fetched"],
            fetch_seconds=data["fetch_seconds"],
            store_requests=StoreRequests(**data["store_requests"]),
            ready=tuple(data["ready"]),
            seconds=data["seconds"],
            executor=data["executor"],
        )

    def statistics(self) -> WorkerStatistics:
        """What a manifest keeps of it."""
        return WorkerStatistics(
            worker=self.worker,
            records=self.records,
            loads=self.loads.to_text() if self.loads else None,
            late=self.late,
            rows=sum(ref.rows for ref in _refs(self.deltas)),
            bytes=sum(ref.bytes for ref in _refs(self.deltas)),
            merged_rows=sum(ref.rows for ref in _refs(self.merged)),
            merged_bytes=sum(ref.bytes for ref in _refs(self.merged)),
            outputs=self.outputs.rows if self.outputs else 0,
            fetched=self.fetched,
            fetch_seconds=self.fetch_seconds,
            store_requests=self.store_requests,
            seconds=self.seconds,
            executor=self.executor,
        )


def _refs(files: Mapping[str, Sequence[WrittenFile]]) -> Iterator[FileRef]:
    return (file.ref for group in files.values() for file in group)


def _to_json(files: Mapping[str, Sequence[WrittenFile]]) -> dict[str, Any]:
    return {
        table: [[file.ref.to_json(), file.segment_rows] for file in group]
        for table, group in files.items()
    }


def _from_json(data: dict[str, Any]) -> dict[str, list[WrittenFile]]:
    return {
        table: [WrittenFile(FileRef.from_json(ref), tuple(rows)) for ref, rows in group]
        for table, group in data.items()
    }
