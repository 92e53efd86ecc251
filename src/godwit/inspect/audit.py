"""Auditing a checkpoint: is every file whole, every epoch there, every row where it belongs?"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from godwit.errors import CheckpointError, DamagedFileError, GodwitError
from godwit.inspect.snapshot import table_specs
from godwit.log import spark_log
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.log.layout import HOME, SPARK, generation_name, manifest_name
from godwit.model.files import FileRef
from godwit.model.ids import Epoch
from godwit.model.manifest import Manifest, output_files
from godwit.model.routing import SEGMENTS
from godwit.model.tree import RunRef, Tree
from godwit.state import file as state_file
from godwit.state.file import Meta
from godwit.state.run import dealt_slices, in_slices, segment_offsets, slices_of
from godwit.state.table import TableSpec
from godwit.state.timed import key_hashes
from godwit.storage.location import Location

AuditProgress = Callable[[int, int], None]  # files audited, files in all


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, and what."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass(slots=True)
class AuditReport:
    """What an audit looked at and what it found; the checkpoint is sound if it found nothing."""

    epochs: tuple[int, ...] = ()
    files: int = 0
    row_versions: int = 0
    findings: list[Finding] = field(default_factory=list)


def verify(checkpoint: Location, progress: AuditProgress = lambda done, total: None) -> AuditReport:
    """Audit all retained epochs of a checkpoint; changes nothing and disturbs no running query.

    It checks that records and files are whole (checksums), epochs follow each other under growing
    generations with the offsets their intents named, each tree is the one before plus the epoch's
    deltas and merges, and the Migration property (Megaphone, section 3.2): every delta row of bin b
    at epoch t was written by `routing(t, b)`.

    A query that runs meanwhile deletes manifests, then what only they name. So what is missing or
    amiss counts only if the epoch that needs it is still retained when that has been seen.
    """
    return _Audit(checkpoint, progress).run()


@dataclass(frozen=True, slots=True)
class _Epoch:
    """A retained epoch, as far as it can be read; trees are by operator and table."""

    manifest: Manifest
    intent: Intent | None
    trees: dict[tuple[str, str], Tree]


@dataclass(slots=True)
class _Use:
    """What the manifests that name a state file say of it: what they read of it by segment."""

    operator: str
    spec: TableSpec
    segments: dict[int, RunRef] = field(default_factory=dict)
    since: int | None = None  # the epoch that wrote it, if the one before is known too


class _Audit:
    def __init__(self, checkpoint: Location, progress: AuditProgress) -> None:
        self.history = History.inspect(checkpoint)
        self.files = self.history.files
        self.progress = progress
        self.report = AuditReport()
        self.epochs: dict[int, _Epoch] = {}

    def run(self) -> AuditReport:
        epochs = self.history.epochs()
        if not epochs:
            raise CheckpointError(str(self.history.checkpoint), "it holds no committed epoch yet")
        self.report.epochs = tuple(epochs)
        for epoch in epochs:
            self._read(epoch)
        self._check_log(epochs)
        for pair in pairwise(epochs):
            self._check_succession(*pair)
        self._check_files()
        self._check_spark()
        return self.report

    def _check_spark(self) -> None:
        """Spark's log must fit, or no query can go on with the checkpoint."""
        last = self.history.last()
        if last is None or last.query == spark_log.NO_SPARK:
            return
        try:
            spark_log.agree(self.history)
        except GodwitError as error:
            self._find(SPARK, error)

    def _find(self, place: str, problem: str | GodwitError, *, of: Iterable[int] = ()) -> None:
        """Note a problem; one of some epochs only if any of them is still retained."""
        epochs = list(of)
        if epochs and not any(self._is_retained(epoch) for epoch in epochs):
            return
        if isinstance(problem, DamagedFileError):
            place = problem.path.removeprefix(f"{self.history.checkpoint}/")
            place, problem = place.removeprefix(f"{HOME}/"), problem.reason
        self.report.findings.append(Finding(place, str(problem)))

    def _is_retained(self, epoch: int) -> bool:
        """Whether the manifest that was read is still there: not pruned, nor rolled back."""
        try:
            now = self.history.manifest(epoch)
        except GodwitError:
            return True
        return now is not None and (
            epoch not in self.epochs or now.id == self.epochs[epoch].manifest.id
        )

    # -- records -------------------------------------------------------------------------------

    def _read(self, epoch: int) -> None:
        place = f"epoch {epoch}"
        try:
            manifest = self.history.manifest(epoch)
            if manifest is None:
                return  # pruned since it was listed
            self.epochs[epoch] = _Epoch(manifest, None, self._trees(manifest))
            intent = self.history.intent(epoch)
        except GodwitError as error:
            self._find(place, error, of=[epoch])
            return
        if intent is None:
            self._find(place, "its intent is missing", of=[epoch])
            return
        self.epochs[epoch] = _Epoch(manifest, intent, self.epochs[epoch].trees)
        if (manifest.query, manifest.offsets) != (intent.query, intent.offsets):
            self._find(place, "manifest and intent name different offsets", of=[epoch])
        newest = self.history.newest_generation()
        if not intent.generation <= manifest.generation <= newest:
            self._find(
                place,
                f"decided by generation {intent.generation}, published by {manifest.generation}, "
                f"newest is {newest}: they must not decrease",
                of=[epoch],
            )

    def _trees(self, manifest: Manifest) -> dict[tuple[str, str], Tree]:
        try:
            return {
                (operator, table): tree.unpack()
                for operator, tables in manifest.trees.items()
                for table, tree in tables.items()
            }
        except (LookupError, TypeError, ValueError) as error:
            path = self.files.address(manifest_name(manifest.epoch))
            raise DamagedFileError(path, f"its trees cannot be read ({error!r})") from error

    def _check_log(self, epochs: list[Epoch]) -> None:
        """What a restart would read besides manifests: generations, requests and open intents."""
        history = self.history
        for number in range(1, history.newest_generation() + 1):
            if not history.files.exists(generation_name(number)):
                self._find(generation_name(number), "is missing: it would fence older drivers off")
        try:
            history.generations()
            for number in history.requests.ids():
                with suppress(FileNotFoundError):  # pruned since it was listed
                    history.requests.request(number)
        except GodwitError as error:
            self._find("log", error)
        for epoch in history.intents():
            if epoch > epochs[-1]:
                try:
                    history.intent(epoch)
                except GodwitError as error:
                    if epoch in history.intents():
                        self._find(f"epoch {epoch}", error)

    # -- from epoch to epoch -------------------------------------------------------------------

    def _check_succession(self, one: int, next: int) -> None:
        place = f"epoch {next}"
        if next != one + 1:
            listed = set(self.history.epochs())
            if {one, next} <= listed and listed.isdisjoint(range(one + 1, next)):
                self._find(place, f"the epoch before it is {one}: some are missing")
            return
        before, after = self.epochs.get(one), self.epochs.get(next)
        if before is None or after is None:
            return
        if after.manifest.generation < before.manifest.generation:
            problem = f"generation {after.manifest.generation} follows {before.manifest.generation}"
            self._find(place, problem, of=[next])
        for problem in _misgrown(before, after):
            self._find(place, problem, of=[next])

    # -- files ---------------------------------------------------------------------------------

    def _check_files(self) -> None:
        uses, epochs = self._named_files()
        self.report.files = len(epochs)
        for done, ref in enumerate(epochs):
            self.progress(done, len(epochs))
            problems: list[str | GodwitError] = []
            try:
                state_file.verify(self.files, ref)
                if ref in uses:
                    problems.extend(self._check_state(ref, uses[ref]))
            except GodwitError as error:
                problems.append(error)
            for problem in problems:
                self._find(ref.name, problem, of=epochs[ref])
        self.progress(len(epochs), len(epochs))

    def _named_files(self) -> tuple[dict[FileRef, _Use], dict[FileRef, list[int]]]:
        """The state files that manifests name, and of every file the epochs whose manifests do."""
        uses: dict[FileRef, _Use] = {}
        named: dict[FileRef, list[int]] = {}
        for number, epoch in self.epochs.items():
            for (operator, table), tree in epoch.trees.items():
                before = self.epochs.get(number - 1)
                for ref in tree.files.values():
                    named.setdefault(ref, []).append(number)
                    if ref not in uses:
                        spec = table_specs(epoch.manifest, operator)[table]
                        uses[ref] = _Use(operator, spec, since=number if before else None)
                for segment in range(SEGMENTS):
                    for run in tree.runs(segment):
                        uses[tree.files[run.file]].segments[segment] = run
            for ref in output_files(epoch.manifest):
                named.setdefault(ref, []).append(number)
        return uses, named

    def _check_state(self, ref: FileRef, use: _Use) -> Iterator[str]:
        """What is wrong with the content of a state file whose bytes are those receipted."""
        opened = state_file.read(self.files, ref.name, use.spec, ref, operator=use.operator)
        hashes, meta = opened.whole().hash, opened.meta
        self.report.row_versions += len(hashes)
        if np.any(hashes[1:] < hashes[:-1]):
            yield "its rows are not in the order of their hash"
            return
        if not np.array_equal(segment_offsets(hashes), meta.offsets):
            yield "its index of segments does not fit its rows"
            return
        keys = key_hashes(use.spec, opened.whole())
        for segment, run in use.segments.items():
            first, last = meta.offsets[segment : segment + 2]
            if last - first != run.rows:
                yield f"it has {last - first} rows of segment {segment}, not {run.rows}"
            elif not in_slices(keys[first:last], run.slices).all():
                yield f"it has rows of segment {segment} in other slices than its tree names"
        if use.since not in (None, meta.epoch):
            yield f"it says that it is of epoch {meta.epoch}, but epoch {use.since} wrote it"
        writer = self.epochs.get(meta.epoch)
        if writer is not None and writer.intent is not None:
            yield from _misplaced(keys, meta, use, writer.intent)


def _misgrown(before: _Epoch, after: _Epoch) -> Iterator[str]:
    """Where a tree is not the one before it, less the runs that were merged, plus new ones."""
    gained = Counter[str]()
    for (operator, table), tree in after.trees.items():
        named = Counter[str]()
        for run in (run for segment in range(SEGMENTS) for run in tree.runs(segment)):
            named[run.file] += run.rows
        earlier = before.trees.get((operator, table), Tree.empty())
        if after.intent is not None:
            yield from _lost_runs(earlier, tree, _merges(after.intent, operator, table))
        for name, ref in tree.files.items():
            if name not in earlier.files:
                gained[operator] += named[name]
                if named[name] != ref.rows:
                    yield f"of the {ref.rows} rows of its file {name}, it names {named[name]}"
    for operator, receipts in after.manifest.receipts.items():
        receipted = sum(receipt.rows + receipt.merged_rows for receipt in receipts)
        if gained[operator] != receipted:
            yield f"'{operator}' gained {gained[operator]} rows, its receipts are of {receipted}"


def _lost_runs(before: Tree, after: Tree, merges: dict[int, int]) -> Iterator[str]:
    for segment, (old, new) in enumerate(zip(before.segments, after.segments, strict=True)):
        kept = old[merges.get(segment, 0) :]
        added = new[: len(new) - len(kept)]
        names = {run.file for layer in added for run in layer}
        if new[len(added) :] != kept or not names.isdisjoint(before.files):
            yield f"segment {segment} lost or gained a run that no merge of its intent accounts for"


def _merges(intent: Intent, operator: str, table: str) -> dict[int, int]:
    """How many of the newest layers of which segment an epoch had to merge."""
    due = intent.merges.get(operator, {}).get(table, ())
    return {merge.segment: merge.layers for merge in due}


def _misplaced(hashes: np.ndarray, meta: Meta, use: _Use, intent: Intent) -> Iterator[str]:
    """Rows that a worker wrote although its epoch's intent did not give them to it, or slices that
    it did not have."""
    routing = intent.routings[meta.operator]
    if meta.kind == "merge":
        due = _merges(intent, meta.operator, meta.table)
        strays = [int(s) for s in np.flatnonzero(np.diff(meta.offsets)) if int(s) not in due]
        if strays:
            yield f"it merged segment {strays[0]}, which its epoch's intent did not ask for"
            return
        slices = dealt_slices(routing)
    else:
        bins = np.unique(routing.bins_at(hashes))
        strays = bins[routing.owners[bins] != meta.worker].tolist()
        if strays:
            yield (
                f"worker {meta.worker} wrote bin {strays[0]} at epoch {meta.epoch}, which "
                f"belonged to worker {routing.owners[strays[0]]}"
            )
            return
        slices = slices_of(routing)
    for segment, run in use.segments.items():
        if run.slices != slices[meta.worker, segment]:
            yield f"its tree names other slices of segment {segment} than those of its worker"
