"""Trees: files are live while a segment names them, rows add up, and merging keeps pace."""

import json
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import DamagedFileError
from godwit.model.routing import SEGMENTS, Routing
from godwit.state.file import WrittenFile
from godwit.state.table import FileRef
from godwit.state.tree import HARD_RUNS, MAX_RUNS, Merge, RunRef, Tree

# The model of a tree: for each segment a list of (file, rows), newest first.
Model = list[list[tuple[str, int]]]


def spread(rows: dict[int, int]) -> list[int]:
    return [rows.get(segment, 0) for segment in range(SEGMENTS)]


def file_of(name: str, rows: list[int]) -> WrittenFile:
    return WrittenFile(FileRef(name, sum(rows), 10 * sum(rows), 7), tuple(rows))


def check(tree: Tree, model: Model) -> None:
    assert [[(run.file, run.rows) for run in runs] for runs in tree.segments] == model
    named = Counter[str]()
    for runs in model:
        for file, rows in runs:
            named[file] += rows
    assert set(named) == set(tree.files)
    assert all(0 < rows <= tree.files[file].rows for file, rows in named.items())
    assert Tree.from_json(json.loads(json.dumps(tree.to_json()))) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


# A few segments only, so that some have many runs.
few = st.integers(0, 3) | st.just(SEGMENTS - 1)
files = st.dictionaries(few, st.integers(1, 100), max_size=4)
merged = st.dictionaries(few, st.tuples(st.integers(1, 4), st.integers(0, 100)), max_size=3)


@given(st.lists(st.tuples(merged, st.lists(files, max_size=2)), max_size=12))
def test_a_tree_is_its_history(
    history: list[tuple[dict[int, tuple[int, int]], list[dict[int, int]]]],
) -> None:
    tree, model = Tree.empty(), [list[tuple[str, int]]() for _ in range(SEGMENTS)]
    check(tree, model)
    for epoch, (merges, deltas) in enumerate(history):
        merges = {s: (k, rows) for s, (k, rows) in merges.items() if k <= len(model[s])}
        left = spread({s: rows for s, (_, rows) in merges.items()})
        name = f"merge-{epoch}"
        written = [file_of(name, left)] if any(left) else []
        before, was = tree, tree.to_json()
        tree = tree.replace([Merge(s, k) for s, (k, _) in merges.items()], written)
        assert before.to_json() == was
        for s, (k, rows) in merges.items():
            model[s][:k] = [(name, rows)] if rows else []
        check(tree, model)
        for worker, delta in enumerate(deltas):
            name = f"delta-{epoch}-{worker}"
            tree = tree.add([file_of(name, spread(delta))])
            for s, rows in delta.items():
                model[s].insert(0, (name, rows))
            check(tree, model)


@given(st.lists(st.integers(1, 1000), max_size=2 * HARD_RUNS), st.integers(0, 5000))
def test_planned_merges_are_due_and_within_the_budget(rows: list[int], budget: int) -> None:
    tree = Tree.empty()
    for i, n in enumerate(rows):
        tree = tree.add([file_of(f"{i}", spread({5: n, 9: n}))])
    plan = tree.plan_merges(budget)
    assert len({merge.segment for merge in plan}) == len(plan)
    read = 0
    for merge in plan:
        runs = tree.segments[merge.segment]
        assert len(runs) > MAX_RUNS
        assert 2 <= merge.runs <= len(runs)
        newer, oldest = [run.rows for run in runs[: merge.runs - 1]], runs[merge.runs - 1].rows
        assert merge.runs == 2 or oldest <= sum(newer)
        read += sum(newer) + oldest
        assert read <= budget or len(runs) >= HARD_RUNS
    if len(rows) >= HARD_RUNS:
        assert {merge.segment for merge in plan} == {5, 9}


def test_the_segment_with_most_runs_comes_first() -> None:
    tree = Tree.empty()
    for i in range(9):
        tree = tree.add([file_of(f"{i}", spread({8: 10, 3: 10 * (i > 0)}))])
    assert tree.plan_merges(1000) == (Merge(8, 9), Merge(3, 8))
    assert tree.plan_merges(100) == (Merge(8, 9),)
    assert tree.plan_merges(10) == ()


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_workers_share_the_merges_of_an_epoch(workers: int, share: float) -> None:
    tree = Tree.empty()
    for i in range(MAX_RUNS + 1):
        tree = tree.add([file_of(f"{i}", [10] * SEGMENTS)])
    merges = tree.plan_merges(int(share * 10 * SEGMENTS * (MAX_RUNS + 1)))
    assert len(merges) == share * SEGMENTS
    owners = Routing.even(SEGMENTS, workers).owners[[merge.segment for merge in merges]]
    given = np.bincount(owners, minlength=workers)
    assert max(given) <= len(merges) / workers + 2


def test_segments_that_move_are_merged_only_when_they_must() -> None:
    tree = Tree.empty()
    for i in range(HARD_RUNS):
        tree = tree.add([file_of(f"{i}", spread({3: 10, 8: 10 * (i > 0), 9: 10 * (i > 0)}))])
    assert {merge.segment for merge in tree.plan_merges(1000, {3, 8})} == {3, 9}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("keys", [1_000_000, 30_000_000])
def test_few_runs_little_rewriting_and_even_epochs(keys: int, workers: int) -> None:
    """Epochs of 500 k updates of random keys, on all segments by every worker."""
    updates, share = 500_000, keys / SEGMENTS
    tree = Tree.empty().add([file_of("base", [keys // SEGMENTS] * SEGMENTS)])
    written, read, runs = [], [], []
    for epoch in range(120):
        merges = tree.plan_merges(4 * updates)
        picked = {m.segment: tree.segments[m.segment][: m.runs] for m in merges}
        left = spread({s: union(share, merging) for s, merging in picked.items()})
        tree = tree.replace(merges, [file_of(f"{epoch}", left)] if merges else [])
        delta = [updates // workers // SEGMENTS] * SEGMENTS
        tree = tree.add(file_of(f"{epoch}-{worker}", delta) for worker in range(workers))
        written.append(sum(left))
        read.append(sum(run.rows for merging in picked.values() for run in merging))
        runs.append(np.mean([len(segment) for segment in tree.segments]))
    late = slice(40, None)
    assert np.mean(written[late]) < 4 * updates
    assert max(read[late]) < 8 * updates
    assert np.mean(runs[late]) < (8 if workers == 1 else 13)
    assert len(tree.files) < 150


def union(keys: float, runs: tuple[RunRef, ...]) -> int:
    """The expected number of different keys in runs of random keys out of so many."""
    return round(keys * (1 - np.prod([1 - min(run.rows / keys, 1) for run in runs])))


def test_rows_that_do_not_add_up_are_refused() -> None:
    tree = Tree.empty().add([file_of("a", spread({1: 1, 2: 2}))])
    short = WrittenFile(FileRef("b", 3, 0, 0), tuple(spread({1: 2})))
    with pytest.raises(DamagedFileError, match=r"b: has 3 rows, but 2 of them are in the tree"):
        tree.add([short])
    with pytest.raises(DamagedFileError, match="b: has 9 rows"):
        tree.replace([Merge(1, 1)], [file_of("b", spread({1: 1, 2: 8}))])
    with pytest.raises(ValueError, match="planned on another tree"):
        tree.replace([Merge(1, 2)], [])
