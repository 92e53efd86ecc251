"""What an epoch was, once it is whole."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from godwit.model.description import OperatorDescription
from godwit.model.files import FileRef
from godwit.model.graph import Graph
from godwit.model.ids import NO_EXECUTOR, Epoch, ExecutorId, WorkerId
from godwit.model.loads import Loads
from godwit.model.store_requests import NO_REQUESTS, StoreRequests
from godwit.model.time import Clocks
from godwit.model.tree import PackedTree


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """What a manifest keeps of a receipt: the numbers of one worker, and where it ran.

    `rows` and `bytes` of state were changed, `merged_rows` and `merged_bytes` rewritten; `outputs`
    rows were put out, `late` records dropped. `fetched` bytes came from the checkpoint, which took
    `fetch_seconds`; `seconds` are by the part of the work. `loads` are the records by bin, if there
    were any, packed: few readers need them. `store_requests` went to an object store.
    """

    worker: WorkerId
    records: int = 0
    loads: str | None = None
    late: int = 0
    rows: int = 0
    bytes: int = 0
    merged_rows: int = 0
    merged_bytes: int = 0
    outputs: int = 0
    fetched: int = 0
    fetch_seconds: float = 0.0  # not in older manifests
    seconds: Mapping[str, float] = field(default_factory=dict)
    executor: ExecutorId = NO_EXECUTOR  # that it ran on
    store_requests: StoreRequests = NO_REQUESTS

    @property
    def process_seconds(self) -> float:
        """What it took to process the records, without reading and writing files."""
        return self.seconds.get("process", 0.0)

    @property
    def tells_bins(self) -> bool:
        """Does it say in how many bins its loads were counted? Older manifests do not."""
        return self.loads is None or Loads.from_text(self.loads).counted is not None

    def records_by_bin(self, bins: int) -> npt.NDArray[np.float64]:
        """The records of each of `bins` bins."""
        return Loads.from_text(self.loads).by_bin(bins) if self.loads else np.zeros(bins)

    def to_json(self) -> dict[str, Any]:
        body = asdict(self)
        if self.store_requests == NO_REQUESTS:
            del body["store_requests"]
        return body | {"place": body.pop("executor")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        others = {name: data[name] for name in data.keys() - {"place", "store_requests"}}
        requests = StoreRequests(**data.get("store_requests", {}))
        return cls(**others, executor=data.get("place", ""), store_requests=requests)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The published result of one epoch: what it names exists, and nothing else does.

    `query` and `offsets` are those of the intent. By operator it has their descriptions, the trees
    of their tables, the files of their outputs, what remains of their receipts, one a worker, and
    the clocks of their inputs up to this epoch, if they have event time. `graph` says how they hang
    together; an older manifest has none, and is of a chain. `late` has the files of late records,
    for operators that keep them. Epoch -1 is the initial state, loaded before the first epoch;
    where a query goes on from one of Spark's own, it is the number of that one's last batch.
    """

    epoch: Epoch
    generation: int
    query: str
    offsets: str
    operators: Mapping[str, OperatorDescription]
    trees: Mapping[str, Mapping[str, PackedTree]]
    outputs: Mapping[str, tuple[FileRef, ...]]
    receipts: Mapping[str, tuple[WorkerStatistics, ...]]
    clocks: Mapping[str, Clocks] = field(default_factory=dict)
    graph: Graph | None = None
    late: Mapping[str, tuple[FileRef, ...]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Unique over all histories: an epoch that is run again after a rollback has another id."""
        return f"{self.query}/{self.epoch}/{self.generation}"

    @property
    def executors(self) -> dict[WorkerId, ExecutorId]:
        """The executor that each worker ran on, if it was the same for all operators."""
        seen = {(one.worker, one.executor) for group in self.receipts.values() for one in group}
        often = Counter(worker for worker, _ in seen)
        return {worker: executor for worker, executor in seen if often[worker] == 1}

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "generation": self.generation,
            "query": self.query,
            "offsets": self.offsets,
            "operators": {name: one.to_json() for name, one in self.operators.items()},
            "trees": {
                name: {table: tree.to_json() for table, tree in tables.items()}
                for name, tables in self.trees.items()
            },
            "outputs": _files_to_json(self.outputs),
            "receipts": {
                name: [one.to_json() for one in group] for name, group in self.receipts.items()
            },
            "clocks": dict(self.clocks),
            **({"graph": self.graph.to_json()} if self.graph else {}),
            **({"late": _files_to_json(self.late)} if self.late else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(
            epoch=data["epoch"],
            generation=data["generation"],
            query=data["query"],
            offsets=data["offsets"],
            operators={
                name: OperatorDescription.from_json(one) for name, one in data["operators"].items()
            },
            trees={
                name: {table: PackedTree.from_json(tree) for table, tree in tables.items()}
                for name, tables in data["trees"].items()
            },
            outputs=_files_from_json(data["outputs"]),
            receipts={
                name: tuple(map(WorkerStatistics.from_json, group))
                for name, group in data["receipts"].items()
            },
            clocks={name: tuple(clocks) for name, clocks in data.get("clocks", {}).items()},
            graph=Graph.from_json(data["graph"]) if "graph" in data else None,
            late=_files_from_json(data.get("late", {})),
        )


def state_files(manifest: Manifest) -> Iterator[FileRef]:
    """The state files that a manifest names."""
    for tables in manifest.trees.values():
        for tree in tables.values():
            yield from tree.files


def output_files(manifest: Manifest) -> Iterator[FileRef]:
    """The output files that a manifest names, those of late records among them."""
    for refs in (*manifest.outputs.values(), *manifest.late.values()):
        yield from refs


def _files_to_json(files: Mapping[str, tuple[FileRef, ...]]) -> dict[str, Any]:
    return {name: [ref.to_json() for ref in refs] for name, refs in files.items()}


def _files_from_json(data: Mapping[str, Any]) -> dict[str, tuple[FileRef, ...]]:
    return {name: tuple(map(FileRef.from_json, refs)) for name, refs in data.items()}
