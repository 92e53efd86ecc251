"""Which runs a table consists of, segment by segment, and which of them to merge next."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, Self

from godwit.errors import DamagedFileError
from godwit.model.files import EVERYWHERE, FileRef, WrittenFile
from godwit.model.routing import SEGMENTS

MAX_LAYERS: Final = 6
HARD_LAYERS: Final = 12

# Odd steps of nearly the golden section: neighbours in it are far apart in the hash space, and any
# few in a row are shared out evenly, whether workers have ranges of it or segments in turns.
_SCATTERED: Final = [step * 27 % SEGMENTS for step in range(SEGMENTS)]


@dataclass(frozen=True, slots=True)
class RunRef:
    """The rows that one file has in one segment, all of them in these slices."""

    file: str
    rows: int
    slices: int = EVERYWHERE


Layer = tuple[RunRef, ...]
"""Runs that share no key: what the workers of an epoch wrote, or made of the layers they merged."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one layer of the newest `layers` of `segment`; a worker does so for some slices."""

    segment: int
    layers: int
    slices: int = EVERYWHERE


@dataclass(frozen=True, slots=True)
class Tree:
    """The layers of one table: for each segment a tuple, newest first.

    `files` has exactly the files that some segment names.

    Merging is logarithmic. A segment is due when it has more than `MAX_LAYERS` layers. Its newest
    two are merged, or as many more as the budget allows such that the oldest of them has no more
    rows than the newer ones together. A segment with `HARD_LAYERS` is merged beyond the budget.
    Segments grow alike and become due together: the budget spreads their merges over the epochs,
    and each epoch's over the hash space, so that workers share them. Workers that share a segment
    merge it in the same epoch, each its own slices; so neither needs what the other one writes.

    The constants are from a simulation of epochs of 500 k rows in all segments, with a budget of 4
    times that; what searching, merging and writing a row costs was measured on a 2-core machine:

    ======================  ===============  ===================  ============  =============
    epochs of               layers searched  write amplification  processor ms  slowest epoch
    ======================  ===============  ===================  ============  =============
    updates,  1 M keys      1.8              1.3                   73           2.0 x mean
    updates,  5 M keys      3.7              2.3                  154           1.4 x mean
    updates, 30 M keys      5.4              3.7                  298           1.3 x mean
    new keys, 1 M to 30 M   5.0              3.2                  223           1.5 x mean
    ======================  ===============  ===================  ============  =============
    """

    segments: tuple[tuple[Layer, ...], ...]
    files: Mapping[str, FileRef]

    @classmethod
    def empty(cls) -> Self:
        return cls(((),) * SEGMENTS, {})

    def runs(
        self, segment: int, slices: int = EVERYWHERE, layers: int | None = None
    ) -> list[RunRef]:
        """Those that may have rows in these slices of a segment, newer layers first; of all layers,
        or of so many."""
        newest = self.segments[segment][:layers]
        return [run for layer in newest for run in layer if run.slices & slices]

    def add(self, deltas: Iterable[tuple[Sequence[WrittenFile], Sequence[int]]]) -> "Tree":
        """With a layer on top: the files of each worker, and its slices, segment by segment."""
        deltas = list(deltas)
        segments = []
        for segment, layers in enumerate(self.segments):
            parts = ((files, slices[segment]) for files, slices in deltas)
            segments.append((*_layer(segment, parts), *layers))
        return self._with(segments, (file for files, _ in deltas for file in files))

    def replace(self, merged: Iterable[tuple[Sequence[Merge], Sequence[WrittenFile]]]) -> "Tree":
        """With merged layers replaced by what workers made of them: the merges of each, and its
        files.

        This must be the tree that the merges were planned on, as far as their segments go: merges
        come before the deltas of their epoch. A merge that left no row just removes its layers.
        """
        merged = list(merged)
        segments = list(self.segments)
        made: dict[Merge, list[tuple[Sequence[WrittenFile], int]]] = {}
        for merges, files in merged:
            for merge in merges:
                planned = Merge(merge.segment, merge.layers)
                made.setdefault(planned, []).append((files, merge.slices))
        for merge, parts in made.items():
            layers = segments[merge.segment]
            if merge.layers > len(layers):
                raise ValueError(f"{merge} was planned on another tree: it has {len(layers)}")
            segments[merge.segment] = (*_layer(merge.segment, parts), *layers[merge.layers :])
        return self._with(segments, (file for _, files in merged for file in files))

    def plan_merges(self, budget_rows: int, moving: Collection[int] = ()) -> tuple[Merge, ...]:
        """The merges to do next, reading at most `budget_rows` rows if it can.

        Segments with most layers come first; among equals the next one is far from those before.

        Of segments that are `moving`, destinations may have the files already, and would have to
        fetch what they are merged to: they are left alone, but for those with too many layers.
        """
        planned = []
        for segment in sorted(_SCATTERED, key=lambda s: -len(self.segments[s])):
            rows = [sum(run.rows for run in layer) for layer in self.segments[segment]]
            if segment in moving and len(rows) < HARD_LAYERS:
                continue
            if chosen := _choose(rows, budget_rows):
                planned.append(Merge(segment, chosen))
                budget_rows -= sum(rows[:chosen])
        return tuple(planned)

    def segments_of_files(self) -> dict[str, list[int]]:
        """By file, the segments that have rows of it, in ascending order."""
        found: dict[str, list[int]] = {name: [] for name in self.files}
        for segment in range(SEGMENTS):
            for run in self.runs(segment):
                found[run.file].append(segment)
        return found

    def pack(self) -> "PackedTree":
        """As a manifest holds it."""
        number = {name: i for i, name in enumerate(self.files)}
        segments = [
            [
                [value for run in layer for value in (number[run.file], run.rows, run.slices)]
                for layer in layers
            ]
            for layers in self.segments
        ]
        return PackedTree(tuple(self.files.values()), segments)

    def _with(self, segments: Sequence[tuple[Layer, ...]], added: Iterable[WrittenFile]) -> "Tree":
        """The tree of `segments`, whose runs are in this tree's files and those `added`."""
        new = {file.ref.name: file.ref for file in added}
        files = {**self.files, **new}
        named = Counter[str]()
        for run in chain.from_iterable(chain.from_iterable(segments)):
            named[run.file] += run.rows
        for ref in new.values():
            if named[ref.name] != ref.rows:
                raise DamagedFileError(
                    ref.name, f"has {ref.rows} rows, but {named[ref.name]} of them are in the tree"
                )
        return Tree(tuple(segments), {name: files[name] for name in files if name in named})


@dataclass(frozen=True, slots=True)
class PackedTree:
    """A tree as a manifest holds it: its files, older ones first, and its segments in numbers.

    A segment is a list of layers, newest first; a layer is, run by run, the number of a file, its
    rows and its slices. To unpack one takes five times as long as to read it, and most readers of
    a manifest need the files alone.
    """

    files: tuple[FileRef, ...]
    segments: Sequence[Sequence[Sequence[int]]]

    def refs(self, wanted: Sequence[int]) -> list[FileRef]:
        """The files with rows in `wanted` slices, segment by segment; older ones come first."""
        numbers = {
            number
            for layers, slices in zip(self.segments, wanted, strict=True)
            for layer in layers
            for number, _, there in _triples(layer)
            if there & slices
        }
        return [self.files[number] for number in sorted(numbers)]

    def unpack(self) -> Tree:
        segments = tuple(
            tuple(
                tuple(RunRef(self.files[number].name, rows, there) for number, rows, there in runs)
                for runs in map(_triples, layers)
            )
            for layers in self.segments
        )
        return Tree(segments, {ref.name: ref for ref in self.files})

    def to_json(self) -> dict[str, Any]:
        return {"files": [ref.to_json() for ref in self.files], "segments": self.segments}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(tuple(map(FileRef.from_json, data["files"])), data["segments"])


def _layer(segment: int, parts: Iterable[tuple[Sequence[WrittenFile], int]]) -> tuple[Layer, ...]:
    """What the files of some workers, each with its slices, have of a segment: one layer, or none
    if that is nothing."""
    runs = tuple(
        RunRef(file.ref.name, rows, slices)
        for files, slices in parts
        for file in files
        if (rows := file.segment_rows[segment])
    )
    return (runs,) if runs else ()


def _triples(flat: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    return zip(flat[::3], flat[1::3], flat[2::3], strict=True)


def _choose(rows: Sequence[int], budget_rows: int) -> int:
    """How many of the newest layers of a segment to merge now; 0 for none."""
    if len(rows) <= MAX_LAYERS:
        return 0
    totals = list(accumulate(rows))
    # Two are merged in any case, more if the oldest has no more rows than the newer ones.
    options = [2, *(n for n in range(3, len(rows) + 1) if rows[n - 1] <= totals[n - 2])]
    affordable = max((n for n in options if totals[n - 1] <= budget_rows), default=0)
    if len(rows) < HARD_LAYERS:
        return affordable
    enough = len(rows) + 1 - MAX_LAYERS
    return max(affordable, next((n for n in options if n >= enough), options[-1]))
