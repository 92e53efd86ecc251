"""What a task returns: the files it wrote, or why it could not. Only receipted files exist."""

import base64
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from godwit.errors import GodwitError
from godwit.state.file import WrittenFile
from godwit.state.table import FileRef


@dataclass(frozen=True, slots=True)
class Receipt:
    """One attempt of one worker's epoch, whole: its state files by table, and its outputs."""

    worker: int
    records: int = 0
    deltas: Mapping[str, WrittenFile] = field(default_factory=dict)
    merged: Mapping[str, WrittenFile] = field(default_factory=dict)
    outputs: FileRef | None = None
    late: int = 0  # records that came after their time had passed
    clocks: tuple[int | None, ...] = (None,)  # the greatest time of each input
    failure: GodwitError | None = None  # why there is nothing: it fails the query
    fetched: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(
            {
                "worker": self.worker,
                "records": self.records,
                "deltas": _to_json(self.deltas),
                "merged": _to_json(self.merged),
                "outputs": self.outputs and self.outputs.to_json(),
                "late": self.late,
                "clocks": self.clocks,
                "failure": self.failure and base64.b64encode(pickle.dumps(self.failure)).decode(),
                "fetched": self.fetched,
                "seconds": self.seconds,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> "Receipt":
        data = json.loads(text)
        return cls(
            worker=data["worker"],
            records=data["records"],
            deltas=_from_json(data["deltas"]),
            merged=_from_json(data["merged"]),
            outputs=data["outputs"] and FileRef.from_json(data["outputs"]),
            late=data["late"],
            clocks=tuple(data["clocks"]),
            failure=data["failure"] and pickle.loads(base64.b64decode(data["failure"])),
            fetched=data["fetched"],
            seconds=data["seconds"],
        )

    def statistics(self) -> dict[str, Any]:
        """The numbers of a receipt that a manifest keeps."""
        return {
            "worker": self.worker,
            "records": self.records,
            "late": self.late,
            "rows": sum(w.ref.rows for w in self.deltas.values()),
            "bytes": sum(w.ref.bytes for w in self.deltas.values()),
            "merged_rows": sum(w.ref.rows for w in self.merged.values()),
            "merged_bytes": sum(w.ref.bytes for w in self.merged.values()),
            "outputs": self.outputs.rows if self.outputs else 0,
            "fetched": self.fetched,
            "seconds": self.seconds,
        }


def _to_json(files: Mapping[str, WrittenFile]) -> dict[str, Any]:
    return {table: [file.ref.to_json(), file.segment_rows] for table, file in files.items()}


def _from_json(data: dict[str, Any]) -> dict[str, WrittenFile]:
    return {
        table: WrittenFile(FileRef.from_json(ref), tuple(segment_rows))
        for table, (ref, segment_rows) in data.items()
    }
