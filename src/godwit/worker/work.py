"""Operator S: one worker's work in one epoch, from records and committed files to a receipt.

`(files at t-1, records of t) -> (delta t, outputs t)`. A task writes only files of its own, whose
names no other attempt uses, so retried, speculative and zombie attempts can do no harm.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyarrow as pa

from godwit import faults
from godwit.errors import GodwitError, OperatorError
from godwit.model.files import EVERYWHERE, FileRef, WrittenFile
from godwit.model.hashing import Hashes, hash_rows
from godwit.model.ids import Epoch, WorkerId
from godwit.model.keys import flat
from godwit.model.loads import Counts, Loads
from godwit.model.receipt import Receipt
from godwit.model.routing import Routing
from godwit.model.tree import Merge, Tree
from godwit.operators.base import Changes, Operator, Prefold
from godwit.operators.definition import RECORDS
from godwit.operators.late import KeepingLate
from godwit.state import file as state_file
from godwit.state import output
from godwit.state.cache import CacheSpec
from godwit.state.file import Kind
from godwit.state.merge import merge as merge_runs
from godwit.state.run import Run, Slices, in_sets, in_slices, segments_of
from godwit.state.table import HASH, TableSpec
from godwit.state.timed import NEVER, WatermarkSpan, is_timed, key_hashes, pending
from godwit.state.view import Own, View
from godwit.storage.store import Store
from godwit.worker.event_time import count, on_time
from godwit.worker.executor_process import executor_id
from godwit.worker.neighbours import Neighbours, tell_written
from godwit.worker.peer_source import PeerSource


@dataclass(frozen=True, slots=True)
class Ahead:
    """Segments whose files workers fetch ahead of need: by worker, the next one first.

    They do so for `seconds` in an epoch; a worker fetches at least one file. Of a segment it needs
    the `slices` that it will have.
    """

    segments: Mapping[WorkerId, Sequence[int]]
    slices: Slices
    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all workers of one operator and epoch; it is sent to executors as it is."""

    operator: Operator
    epoch: Epoch
    store: Store  # the files of the checkpoint below `godwit/`
    trees: Mapping[str, Tree]
    merges: Mapping[str, Mapping[WorkerId, Sequence[Merge]]]  # by table and worker
    cache: CacheSpec
    bins: int
    slices: Slices  # in which workers have bins
    routing: Routing | None = None  # where bins are looked up: for timers, and to check records
    span: WatermarkSpan = NEVER  # the operator's watermarks of the epoch before and of this one
    ahead: Ahead | None = None
    prefold: Prefold | None = None  # records come folded
    neighbours: Neighbours | None = None  # if replicas are kept

    def run(
        self,
        worker: WorkerId,
        batches: Iterable[pa.RecordBatch],
        clock: Callable[[], float] = perf_counter,
    ) -> Receipt:
        """Do the work of `worker` on its records, which may carry their key's hash in `_hash`."""
        attempt = _Attempt(self, worker, clock)
        try:
            return attempt.run(batches)
        except OperatorError as error:
            located = OperatorError(
                error.operator, error.key, error.cause, epoch=self.epoch, worker=worker
            )
            return Receipt(worker, failure=located)
        except GodwitError as error:  # such as a damaged file: to try again would not help
            return Receipt(worker, failure=error)
        finally:
            attempt.close()


class _Attempt:
    def __init__(self, work: Work, worker: WorkerId, clock: Callable[[], float]) -> None:
        self.work = work
        self.clock = clock
        self.operator = work.prefold.operator if work.prefold else work.operator
        self.worker = worker
        self.near = _near(work.neighbours, worker)
        self.files = work.cache.open(work.store, near=self.near)
        self.token = uuid.uuid4().hex[:12]
        self.seconds: dict[str, float] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> Receipt:
        operator, epoch, name = self.operator, self.work.epoch, self.work.operator.name
        with self._timed("receive"):
            received = _records([batch for batch in batches if batch.num_rows], operator)
        punctual = on_time(operator, received, self.work.span.passed)
        records, changes, loads = punctual.records, Changes(), None
        if records.num_rows or operator.delay is not None:
            hashes = records.column(HASH).to_numpy().view(np.uint64)
            self._check_own(hashes)
            loads = Loads.of(hashes, self.work.bins, _counts(records))
            views = {spec.name: self._view(spec) for spec in operator.tables}
            with self._timed("process"):
                changes = operator.process(epoch, hashes, records.drop_columns([HASH]), views)
        faults.reach("delta", "before", epoch, name)
        with self._timed("write"):
            deltas = {
                spec.name: self._write(spec, "delta", state_file.parts(rows))
                for spec in operator.tables
                if (rows := changes.deltas.get(spec.name)) is not None and rows.num_rows
            }
        faults.reach("delta", "after", epoch, name)
        faults.reach("outputs", "before", epoch, name)
        with self._timed("outputs"):
            outputs = self._write_outputs("output", changes.outputs)
            late = None
            if isinstance(operator, KeepingLate):
                late = self._write_outputs("late", operator.as_given(punctual.late))
        faults.reach("outputs", "after", epoch, name)
        with self._timed("merge"):
            merged = {
                spec.name: self._write(spec, "merge", state_file.gather_segments(self._merge(spec)))
                for spec in operator.tables
                if self._due(spec)
            }
        with self._timed("fetch"):
            ready = self._fetch(self.work.ahead) if self.work.ahead else []
        return Receipt(
            worker=self.worker,
            records=count(received),
            loads=loads,
            late=count(punctual.late),
            clocks=punctual.clocks,
            deltas=deltas,
            merged=merged,
            outputs=outputs,
            late_records=late,
            fetched=self.files.fetched_bytes,
            fetch_seconds=round(self.files.fetch_seconds, 4),
            store_requests=self.files.store_requests,
            ready=tuple(ready),
            seconds=self.seconds,
        )

    def close(self) -> None:
        if self.near is not None:
            self.near.close()

    def _check_own(self, hashes: Hashes) -> None:
        """Nobody but the worker of a bin may change it: two deltas of an epoch share no key, and
        runs that cannot have a key are not searched for it."""
        routing = self.work.routing
        own = in_sets(hashes, self.work.slices[self.worker])
        if routing is not None:
            own &= routing.owners_at(hashes) == self.worker
        if not own.all():
            raise GodwitError(
                f"epoch {self.work.epoch}: worker {self.worker} of operator "
                f"'{self.work.operator.name}' got records of another one's bins; nothing of this "
                "epoch is kept. Please report this, with the plan of the query"
            )

    def _view(self, spec: TableSpec) -> View:
        if not is_timed(spec):
            return View(spec, self._segments(spec))
        return View(spec, self._segments(spec), self.work.span, self._own())

    def _segments(self, spec: TableSpec) -> Callable[[int], Sequence[Run]]:
        """The runs of a segment that may have rows of this worker, newer layers first, opened when
        asked for."""
        slices = self.work.slices[self.worker].tolist()
        return lambda segment: self._open(spec, segment, slices[segment])

    def _open(
        self, spec: TableSpec, segment: int, slices: int, layers: int | None = None
    ) -> list[Run]:
        tree = self.work.trees[spec.name]
        runs = [
            self.files.open(tree.files[run.file], spec).segment(segment)
            for run in tree.runs(segment, slices, layers)
        ]
        return pending(runs, segment, self.work.span.passed) if is_timed(spec) else runs

    def _own(self) -> Own:
        """The bins of this worker, and the segments that they are in."""
        routing = self.work.routing
        assert routing is not None
        segments = segments_of(routing, self.worker)
        return Own(segments, lambda hashes: np.equal(routing.owners_at(hashes), self.worker))

    def _write(self, spec: TableSpec, kind: Kind, parts: Iterable[pa.Table]) -> list[WrittenFile]:
        directory = f"state/{self.work.operator.name}/{spec.name}"
        files: list[WrittenFile] = []
        for part in parts:
            written = state_file.write(
                self.files,
                f"{directory}/{self._stem(kind)}-{len(files)}.arrow",
                spec,
                part,
                operator=self.work.operator.name,
                epoch=self.work.epoch,
                worker=self.worker,
                kind=kind,
            )
            self.files.add(written.ref)
            files.append(written)
            del part  # while the next one is made
        self._tell([written.ref for written in files])
        return files

    def _tell(self, refs: Sequence[FileRef]) -> None:
        """Let the keeper of this executor send what was written to others, meanwhile."""
        near = self.work.neighbours
        if refs and near is not None and near.key is not None and near.chains.get(self.worker):
            tell_written(self.work.cache.path, refs, self.worker, near.chains[self.worker])

    def _due(self, spec: TableSpec) -> Sequence[Merge]:
        return self.work.merges.get(spec.name, {}).get(self.worker, ())

    def _merge(self, spec: TableSpec) -> Iterator[pa.Table]:
        """What the segments that this worker has to merge become; nothing may be left of some."""
        tree = self.work.trees[spec.name]
        for merge in sorted(self._due(spec), key=lambda merge: merge.segment):
            final = merge.layers == len(tree.segments[merge.segment])
            if runs := self._open(spec, merge.segment, merge.slices, merge.layers):
                yield merge_runs(
                    [_within(merge.slices, run, spec) for run in runs], spec, final
                ).rows

    def _fetch(self, ahead: Ahead) -> list[int]:
        """Fetch what is to come, as long as there is time; returns the segments that are here."""
        end, fetched = self.clock() + ahead.seconds, 0
        ready: list[int] = []
        for segment in ahead.segments.get(self.worker, ()):
            slices = int(ahead.slices[self.worker, segment])
            for tree in self.work.trees.values():
                for ref in (tree.files[run.file] for run in tree.runs(segment, slices)):
                    if not self.files.has(ref):
                        if fetched and self.clock() >= end:
                            return ready
                        self.files.fetch(ref)
                        fetched += 1
            ready.append(segment)
        return ready

    def _write_outputs(self, kind: str, rows: pa.Table | None) -> FileRef | None:
        if rows is None or not rows.num_rows:
            return None
        name = f"outputs/{self.work.operator.name}/{self._stem(kind)}.parquet"
        return output.write(self.work.store, name, rows)

    def _stem(self, kind: str) -> str:
        return f"e{self.work.epoch}-w{self.worker}-{kind}-{self.token}"

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = self.clock()
        yield
        self.seconds[part] = round(self.clock() - start, 4)


def _near(neighbours: Neighbours | None, worker: WorkerId) -> PeerSource | None:
    """Where a worker's files may be nearer than in the checkpoint."""
    if neighbours is None or neighbours.key is None or not neighbours.addresses:
        return None
    executor = executor_id()
    return PeerSource(neighbours.key, executor, neighbours.nearest(worker, executor))


def _within(slices: int, run: Run, spec: TableSpec) -> Run:
    """The rows of a run whose keys are in some slices of its segment."""
    if slices == EVERYWHERE:
        return run
    own = in_slices(key_hashes(spec, run), slices)
    return run if own.all() else Run.of(run.rows.filter(pa.array(own)))


def _records(batches: list[pa.RecordBatch], operator: Operator) -> pa.Table:
    """The batches as one table in one chunk, of the types that operators know, and with hashes."""
    if not batches:
        empty = [*map(_plain_field, operator.input), pa.field(HASH, pa.uint64())]
        return pa.schema(empty).empty_table()
    table = pa.Table.from_batches(batches).combine_chunks()
    fields = list(map(_plain_field, table.schema))
    if fields != list(table.schema):
        table = table.cast(pa.schema(fields))
    if HASH not in table.column_names:
        table = table.append_column(HASH, pa.array(hash_rows(table.select(operator.key.names))))
    return table


def _counts(rows: pa.Table) -> Counts | None:
    """How many records each row stands for; None: each is one."""
    return flat(rows.column(RECORDS)).to_numpy() if RECORDS in rows.column_names else None


def plain(kind: pa.DataType) -> pa.DataType:
    """State is kept in UTC, while Spark hands timestamps over in the session's time zone; and
    Spark says, as state does not, whether there may be nulls inside of a value."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_struct(kind) and not any(field.metadata for field in kind):  # no variant
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), _plain_field(kind.item_field))
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type)).with_nullable(True)
