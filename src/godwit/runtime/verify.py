"""Auditing a checkpoint: is every file whole, every epoch there, every row where it belongs?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from godwit.errors import CheckpointError, GodwitError
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.log.layout import HOME
from godwit.log.manifest import Manifest
from godwit.model.routing import Routing
from godwit.runtime.garbage import output_files
from godwit.runtime.snapshot import bins_of, table_specs
from godwit.state import file as state_file
from godwit.state.run import segment_offsets
from godwit.state.table import FileRef, TableSpec
from godwit.state.tree import Tree

Progress = Callable[[int, int], None]  # files audited, files in all


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, and what."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


@dataclass(slots=True)
class Report:
    """What an audit looked at and what it found; the checkpoint is sound if it found nothing."""

    epochs: tuple[int, ...] = ()
    files: int = 0
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)


def verify(checkpoint: Path, progress: Progress = lambda done, total: None) -> Report:
    """Audit all retained epochs of a checkpoint; changes nothing and disturbs no running query.

    It checks that records and files are whole (checksums), epochs follow each other under growing
    generations with the offsets their intents named, each tree is the one before plus the epoch's
    deltas and merges, and the Migration property (Megaphone, section 3.2): every delta row of bin b
    at epoch t was written by `routing(t, b)`.
    """
    return _Audit(checkpoint, progress).run()


class _Audit:
    def __init__(self, checkpoint: Path, progress: Progress) -> None:
        self.root = checkpoint / HOME
        self.history = History.inspect(checkpoint)
        self.progress = progress
        self.report = Report()

    def run(self) -> Report:
        epochs = self.history.epochs()
        if not epochs:
            raise CheckpointError(str(self.root.parent), "it holds no committed epoch yet")
        self.report.epochs = tuple(epochs)
        whole = [pair for epoch in epochs if (pair := self._records(epoch))]
        for (before, _), (after, _) in pairwise(whole):
            self._check_continuity(before, after)
        self._check_files(whole)
        return self.report

    def _find(self, place: str, problem: str) -> None:
        self.report.findings.append(Finding(place, problem))

    def _records(self, epoch: int) -> tuple[Manifest, Intent] | None:
        """The manifest and intent of an epoch, if both can be read and agree."""
        try:
            manifest, intent = self.history.manifest(epoch), self.history.intent(epoch)
        except GodwitError as error:
            self._find(f"epoch {epoch}", str(error))
            return None
        if manifest is None or intent is None:
            self._find(f"epoch {epoch}", "its intent is missing")
            return None
        if (manifest.query, manifest.offsets) != (intent.query, intent.offsets):
            self._find(f"epoch {epoch}", "manifest and intent name different offsets")
        newest = self.history.newest_generation()
        if not intent.generation <= manifest.generation <= newest:
            self._find(
                f"epoch {epoch}",
                f"decided by generation {intent.generation}, published by {manifest.generation}, "
                f"newest is {newest}: they must not decrease",
            )
        return manifest, intent

    def _check_continuity(self, before: Manifest, after: Manifest) -> None:
        place = f"epoch {after.epoch}"
        if after.epoch != before.epoch + 1:
            self._find(place, f"the epoch before it is {before.epoch}: some are missing")
            return
        if after.generation < before.generation:
            self._find(place, f"generation {after.generation} follows {before.generation}")
        for operator, tables in after.trees.items():
            for table, tree in tables.items():
                earlier = before.trees.get(operator, {}).get(table)
                if earlier is not None:
                    self._check_growth(place, Tree.from_json(earlier), Tree.from_json(tree))

    def _check_growth(self, place: str, before: Tree, after: Tree) -> None:
        """Old runs may be replaced only from the newest on: the older ones stay as they are."""
        for segment, (old, new) in enumerate(zip(before.segments, after.segments, strict=True)):
            kept = [run for run in new if run.file in before.files]
            if kept != list(old[len(old) - len(kept) :]):
                self._find(place, f"segment {segment} lost a run that nothing replaced")

    def _check_files(self, epochs: list[tuple[Manifest, Intent]]) -> None:
        routings = {manifest.epoch: intent.routings for manifest, intent in epochs}
        named = _named_files([manifest for manifest, _ in epochs])
        for done, (ref, owner) in enumerate(named.items()):
            self.progress(done, len(named))
            try:
                state_file.verify(self.root / ref.name, ref)
                if owner is not None:
                    self._check_state_file(ref, *owner, routings)
            except GodwitError as error:
                self._find(ref.name, str(error))
        self.report.files = len(named)
        self.progress(len(named), len(named))

    def _check_state_file(
        self,
        ref: FileRef,
        operator: str,
        spec: TableSpec,
        routings: Mapping[int, Mapping[str, Routing]],
    ) -> None:
        opened = state_file.read(self.root / ref.name, spec, ref, operator=operator)
        hashes, meta = opened.whole().hash, opened.meta
        self.report.rows += len(hashes)
        if np.any(hashes[1:] < hashes[:-1]):
            self._find(ref.name, "its rows are not in the order of their hash")
        if not np.array_equal(segment_offsets(hashes), meta.offsets):
            self._find(ref.name, "its index of segments does not fit its rows")
        if meta.kind == "delta" and meta.epoch in routings:
            routing = routings[meta.epoch][operator]
            bins = np.unique(bins_of(hashes, routing))
            strays = bins[routing.owners[bins] != meta.worker]
            if len(strays):
                self._find(
                    ref.name,
                    f"worker {meta.worker} wrote bin {strays[0]} at epoch {meta.epoch}, which "
                    f"belonged to worker {routing.owners[strays[0]]}",
                )


def _named_files(manifests: list[Manifest]) -> dict[FileRef, tuple[str, TableSpec] | None]:
    """Every file that a manifest names, with operator and table if it holds state."""
    named: dict[FileRef, tuple[str, TableSpec] | None] = {}
    for manifest in manifests:
        for operator, tables in manifest.trees.items():
            specs = table_specs(manifest, operator)
            for table, tree in tables.items():
                for ref in Tree.from_json(tree).files.values():
                    named[ref] = (operator, specs[table])
        named.update(dict.fromkeys(output_files(manifest)))
    return named
