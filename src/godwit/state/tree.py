"""Which runs a table consists of, segment by segment, and which of them to merge next."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, Self

from godwit.errors import DamagedFileError
from godwit.model.routing import SEGMENTS
from godwit.state.file import WrittenFile
from godwit.state.table import FileRef

MAX_RUNS: Final = 6
HARD_RUNS: Final = 12

# Odd steps of nearly the golden section: neighbours in it are far apart in the hash space, and any
# few in a row are shared out evenly, whether workers have ranges of it or segments in turns.
_SCATTERED: Final = [step * 27 % SEGMENTS for step in range(SEGMENTS)]


@dataclass(frozen=True, slots=True)
class RunRef:
    """The rows that one file has in one segment."""

    file: str
    rows: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one run of the newest `runs` runs of `segment`."""

    segment: int
    runs: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The runs of one table: for each segment a tuple, newest first.

    `files` has exactly the files that some segment names.

    Merging is logarithmic. A segment is due when it has more than `MAX_RUNS` runs. Its newest two
    runs are merged, or as many more as the budget allows such that the oldest of them has no more
    rows than the newer ones together. A segment with `HARD_RUNS` runs is merged beyond the budget.
    Segments grow alike and become due together: the budget spreads their merges over the epochs,
    and each epoch's over the hash space, so that workers share them.

    The constants are from a simulation of epochs of 500 k rows in all segments, with a budget of 4
    times that; what searching, merging and writing a row costs was measured on a 2-core machine:

    ======================  =============  ===================  ============  =============
    epochs of               runs searched  write amplification  processor ms  slowest epoch
    ======================  =============  ===================  ============  =============
    updates,  1 M keys      1.8            1.3                   73           2.0 x mean
    updates,  5 M keys      3.7            2.3                  154           1.4 x mean
    updates, 30 M keys      5.4            3.7                  298           1.3 x mean
    new keys, 1 M to 30 M   5.0            3.2                  223           1.5 x mean
    ======================  =============  ===================  ============  =============

    With four deltas an epoch in every segment instead of one, 30 M keys cost 1.3 times as much.
    """

    segments: tuple[tuple[RunRef, ...], ...]
    files: Mapping[str, FileRef]

    @classmethod
    def empty(cls) -> Self:
        return cls(((),) * SEGMENTS, {})

    def add(self, files: Iterable[WrittenFile]) -> "Tree":
        """With deltas on top; those of one epoch share no key, so they come in any order."""
        files = list(files)
        segments = [
            (
                *(RunRef(f.ref.name, rows) for f in files if (rows := f.segment_rows[segment])),
                *runs,
            )
            for segment, runs in enumerate(self.segments)
        ]
        return self._with(segments, files)

    def replace(self, merges: Iterable[Merge], files: Iterable[WrittenFile]) -> "Tree":
        """With merged runs replaced by what the merges made of them, which is in `files`.

        This must be the tree that the merges were planned on, as far as their segments go: merges
        come before the deltas of their epoch. A merge that left no row just removes its runs.
        """
        files = list(files)
        segments = list(self.segments)
        for merge in merges:
            runs = segments[merge.segment]
            if merge.runs > len(runs):
                raise ValueError(f"{merge} was planned on another tree: there are {len(runs)} runs")
            merged = [
                RunRef(f.ref.name, rows) for f in files if (rows := f.segment_rows[merge.segment])
            ]
            segments[merge.segment] = (*merged, *runs[merge.runs :])
        return self._with(segments, files)

    def plan_merges(self, budget_rows: int, moving: Collection[int] = ()) -> tuple[Merge, ...]:
        """The merges to do next, reading at most `budget_rows` rows if it can.

        Segments with most runs come first; among equals the next one is far from those before it.

        Of segments that are `moving`, destinations may have the files already, and would have to
        fetch what they are merged to: they are left alone, but for those with too many runs.
        """
        planned = []
        for segment in sorted(_SCATTERED, key=lambda s: -len(self.segments[s])):
            runs = self.segments[segment]
            if segment in moving and len(runs) < HARD_RUNS:
                continue
            if chosen := _choose([run.rows for run in runs], budget_rows):
                planned.append(Merge(segment, chosen))
                budget_rows -= sum(run.rows for run in runs[:chosen])
        return tuple(planned)

    def segments_of_files(self) -> dict[str, list[int]]:
        """By file, the segments that have rows of it, in ascending order."""
        found: dict[str, list[int]] = {name: [] for name in self.files}
        for segment, runs in enumerate(self.segments):
            for run in runs:
                found[run.file].append(segment)
        return found

    def to_json(self) -> dict[str, Any]:
        """Files in a list, and for each segment the number of a file and its rows, run by run."""
        number = {name: i for i, name in enumerate(self.files)}
        return {
            "files": [ref.to_json() for ref in self.files.values()],
            "segments": [
                [value for run in runs for value in (number[run.file], run.rows)]
                for runs in self.segments
            ],
        }

    @staticmethod
    def refs(data: dict[str, Any], segments: Iterable[int] | None = None) -> list[FileRef]:
        """The files of a tree in JSON, or those of some segments; older ones come first."""
        files = data["files"]
        if segments is not None:
            numbers = {number for one in segments for number in data["segments"][one][::2]}
            files = [files[number] for number in sorted(numbers)]
        return [FileRef.from_json(ref) for ref in files]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        refs = cls.refs(data)
        segments = tuple(
            tuple(RunRef(refs[i].name, rows) for i, rows in zip(flat[::2], flat[1::2], strict=True))
            if flat
            else ()
            for flat in data["segments"]
        )
        return cls(segments, {ref.name: ref for ref in refs})

    def _with(self, segments: Sequence[tuple[RunRef, ...]], added: Iterable[WrittenFile]) -> "Tree":
        """The tree of `segments`, whose runs are in this tree's files and those `added`."""
        files = {**self.files, **{file.ref.name: file.ref for file in added}}
        named = Counter[str]()
        for run in chain.from_iterable(segments):
            named[run.file] += run.rows
        for ref in (file.ref for file in added):
            if named[ref.name] != ref.rows:
                raise DamagedFileError(
                    ref.name, f"has {ref.rows} rows, but {named[ref.name]} of them are in the tree"
                )
        return Tree(tuple(segments), {name: files[name] for name in files if name in named})


def _choose(rows: Sequence[int], budget_rows: int) -> int:
    """How many of the newest runs of a segment to merge now; 0 for none."""
    if len(rows) <= MAX_RUNS:
        return 0
    totals = list(accumulate(rows))
    # Two runs are merged in any case, more if the oldest has no more rows than the newer ones.
    options = [2, *(n for n in range(3, len(rows) + 1) if rows[n - 1] <= totals[n - 2])]
    affordable = max((n for n in options if totals[n - 1] <= budget_rows), default=0)
    if len(rows) < HARD_RUNS:
        return affordable
    enough = len(rows) + 1 - MAX_RUNS
    return max(affordable, next((n for n in options if n >= enough), options[-1]))
