"""Small values for the tests of the log."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from godwit.log import Intent, Journal
from godwit.log.history import History
from godwit.model.description import OperatorDescription
from godwit.model.files import FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.manifest import Manifest, WorkerStatistics
from godwit.model.requests import ScheduleRequest, Updates
from godwit.model.routing import Routing, Update
from godwit.model.tree import Merge, PackedTree
from godwit.storage.local import LocalStore

QUERY = "364c1b9d-b515-4fab-918b-d5d838f9efd6"
EVEN = Routing.even(bins=8, workers=2)


def journal_at(root: Path) -> Journal:
    return Journal.open(LocalStore(root, durable=False))


def intent_of(
    epoch: int, routings: Mapping[str, Routing] | None = None, offsets: str = "digest"
) -> Intent:
    routings = {"counts": EVEN} if routings is None else routings
    return Intent(Epoch(epoch), 0, QUERY, offsets, routings, {"counts": {"value": (Merge(1, 2),)}})


def manifest_of(epoch: int, offsets: str = "digest", note: str = "") -> Manifest:
    files = (FileRef("state/counts/a.arrow", 10, 100, 0),)
    trees = {"counts": {"value": PackedTree(files, [[[0, 10, 1]]])}}
    operators = {"counts": OperatorDescription("aggregate", "k", "k", {})}
    receipts = {"counts": (WorkerStatistics(WorkerId(0), executor=ExecutorId(note)),)}
    return Manifest(Epoch(epoch), 0, QUERY, offsets, operators, trees, {}, receipts)


def run(journal: Journal, *epochs: int) -> None:
    """Begin and publish epochs."""
    for epoch in epochs:
        journal.begin(intent_of(epoch))
        journal.publish(manifest_of(epoch))


def begun(checkpoint: Path, query: str) -> None:
    """Let the log of a checkpoint say which query's it is."""
    if History(checkpoint).query is None:
        journal_at(checkpoint).begin(replace(intent_of(0), query=query))


def published(checkpoint: Path, query: str, *epochs: int) -> list[str]:
    """Publish epochs of a query, as a driver that takes the checkpoint over; their commits."""
    journal = journal_at(checkpoint)
    commits = []
    for epoch in epochs:
        journal.begin(replace(intent_of(epoch), query=query))
        commits.append(journal.publish(replace(manifest_of(epoch), query=query)).id)
    return commits


def files_below(directory: Path) -> dict[str, bytes]:
    """Every file below a directory with its content, without what is being written."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "staging" not in path.parts
    }


def offsets_file(epoch: int, time: int = 0) -> str:
    """What Spark writes to offsets/EPOCH: the batch with its time, then a line per source."""
    return (
        f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{time}}}\n{{"logOffset":{epoch}}}\n{epoch}'
    )


def spark_log(root: Path, offsets: int, commits: int, first: int = 0) -> Path:
    """Spark's log as if it planned and committed the epochs up to those given."""
    spark = root / "spark"
    for log, last in (("offsets", offsets), ("commits", commits)):
        (spark / log).mkdir(parents=True, exist_ok=True)
        for epoch in range(first, last + 1):
            text = offsets_file(epoch) if log == "offsets" else 'v1\n{"nextBatchWatermarkMs":0}'
            (spark / log / str(epoch)).write_text(text)
            (spark / log / f".{epoch}.crc").write_bytes(b"crc")
    (spark / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    return spark


def schedule_of(first: int, *epochs: int, workers: int | None = None) -> ScheduleRequest:
    """A request from epoch `first` on that moves bin 0 of 8 to worker 1 at each of `epochs`."""
    updates = Updates.of([Update(epoch, 0, 1) for epoch in epochs])
    return ScheduleRequest(0, "counts", Epoch(first), updates, 8, workers)
