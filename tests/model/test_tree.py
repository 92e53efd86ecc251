"""Trees: files are live while a segment names them, rows add up, and merging keeps pace."""

import json
import pickle
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import DamagedFileError
from godwit.model.files import EVERYWHERE, FileRef, WrittenFile
from godwit.model.routing import SEGMENTS, Routing
from godwit.model.tree import HARD_LAYERS, MAX_LAYERS, Merge, PackedTree, RunRef, Tree

# The model of a tree: for each segment a list of layers of (file, rows), newest first.
Model = list[list[list[tuple[str, int]]]]

OF_ALL = [EVERYWHERE] * SEGMENTS


def spread(rows: dict[int, int]) -> list[int]:
    return [rows.get(segment, 0) for segment in range(SEGMENTS)]


def file_of(name: str, rows: list[int]) -> WrittenFile:
    return WrittenFile(FileRef(name, sum(rows), 10 * sum(rows), 7), tuple(rows))


def layered(tree: Tree, *files: WrittenFile) -> Tree:
    """With another layer, in which each file may have rows anywhere."""
    return tree.add(([file], OF_ALL) for file in files)


def check(tree: Tree, model: Model) -> None:
    assert [
        [[(run.file, run.rows) for run in layer] for layer in layers] for layers in tree.segments
    ] == model
    named = Counter[str]()
    for layers in model:
        for file, rows in chain.from_iterable(layers):
            named[file] += rows
    assert set(named) == set(tree.files)
    assert all(0 < rows <= tree.files[file].rows for file, rows in named.items())
    assert PackedTree.from_json(json.loads(json.dumps(tree.pack().to_json()))).unpack() == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


# A few segments only, so that some have many runs.
few = st.integers(0, 3) | st.just(SEGMENTS - 1)
files = st.dictionaries(few, st.integers(1, 100), max_size=4)
merged = st.dictionaries(few, st.tuples(st.integers(1, 4), st.integers(0, 100)), max_size=3)


@given(st.lists(st.tuples(merged, st.lists(files, max_size=2)), max_size=12))
def test_a_tree_is_its_history(
    history: list[tuple[dict[int, tuple[int, int]], list[dict[int, int]]]],
) -> None:
    tree, model = Tree.empty(), [list[list[tuple[str, int]]]() for _ in range(SEGMENTS)]
    check(tree, model)
    for epoch, (merges, deltas) in enumerate(history):
        merges = {s: (k, rows) for s, (k, rows) in merges.items() if k <= len(model[s])}
        left = spread({s: rows for s, (_, rows) in merges.items()})
        name = f"merge-{epoch}"
        written = [file_of(name, left)] if any(left) else []
        before, was = tree, tree.pack()
        tree = tree.replace([([Merge(s, k) for s, (k, _) in merges.items()], written)])
        assert before.pack() == was
        for s, (k, rows) in merges.items():
            model[s][:k] = [[(name, rows)]] if rows else []
        check(tree, model)
        names = [f"delta-{epoch}-{worker}" for worker in range(len(deltas))]
        tree = layered(tree, *map(file_of, names, map(spread, deltas)))
        for s in set().union(*deltas):
            there = zip(names, deltas, strict=True)
            model[s].insert(0, [(name, delta[s]) for name, delta in there if s in delta])
        check(tree, model)


@given(st.lists(st.integers(1, 1000), max_size=2 * HARD_LAYERS), st.integers(0, 5000))
def test_planned_merges_are_due_and_within_the_budget(rows: list[int], budget: int) -> None:
    tree = Tree.empty()
    for i, n in enumerate(rows):
        tree = layered(tree, file_of(f"{i}", spread({5: n, 9: n})))
    plan = tree.plan_merges(budget)
    assert len({merge.segment for merge in plan}) == len(plan)
    read = 0
    for merge in plan:
        layers = tree.segments[merge.segment]
        assert len(layers) > MAX_LAYERS
        assert 2 <= merge.layers <= len(layers)
        *newer, oldest = (run.rows for run in tree.runs(merge.segment, layers=merge.layers))
        assert merge.layers == 2 or oldest <= sum(newer)
        read += sum(newer) + oldest
        assert read <= budget or len(layers) >= HARD_LAYERS
    if len(rows) >= HARD_LAYERS:
        assert {merge.segment for merge in plan} == {5, 9}


def test_the_segment_with_most_layers_comes_first() -> None:
    tree = Tree.empty()
    for i in range(9):
        tree = layered(tree, file_of(f"{i}", spread({8: 10, 3: 10 * (i > 0)})))
    assert tree.plan_merges(1000) == (Merge(8, 9), Merge(3, 8))
    assert tree.plan_merges(100) == (Merge(8, 9),)
    assert tree.plan_merges(10) == ()


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_workers_share_the_merges_of_an_epoch(workers: int, share: float) -> None:
    tree = Tree.empty()
    for i in range(MAX_LAYERS + 1):
        tree = layered(tree, file_of(f"{i}", [10] * SEGMENTS))
    merges = tree.plan_merges(int(share * 10 * SEGMENTS * (MAX_LAYERS + 1)))
    assert len(merges) == share * SEGMENTS
    owners = Routing.even(SEGMENTS, workers).owners[[merge.segment for merge in merges]]
    given = np.bincount(owners, minlength=workers)
    assert max(given) <= len(merges) / workers + 2


def test_segments_that_move_are_merged_only_when_they_must() -> None:
    tree = Tree.empty()
    for i in range(HARD_LAYERS):
        tree = layered(tree, file_of(f"{i}", spread({3: 10, 8: 10 * (i > 0), 9: 10 * (i > 0)})))
    assert {merge.segment for merge in tree.plan_merges(1000, {3, 8})} == {3, 9}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("keys", [1_000_000, 30_000_000])
def test_few_runs_little_rewriting_and_even_epochs(keys: int, workers: int) -> None:
    """Epochs of 500 k updates of random keys, on all segments by every worker."""
    updates, share = 500_000, keys / SEGMENTS
    tree = layered(Tree.empty(), file_of("base", [keys // SEGMENTS] * SEGMENTS))
    written, read, layers = [], [], []
    for epoch in range(120):
        merges = tree.plan_merges(4 * updates)
        picked = {m.segment: tree.runs(m.segment, layers=m.layers) for m in merges}
        left = spread({s: union(share, merging) for s, merging in picked.items()})
        tree = tree.replace([(merges, [file_of(f"{epoch}", left)] if merges else [])])
        delta = [updates // workers // SEGMENTS] * SEGMENTS
        tree = layered(tree, *(file_of(f"{epoch}-{worker}", delta) for worker in range(workers)))
        written.append(sum(left))
        read.append(sum(run.rows for merging in picked.values() for run in merging))
        layers.append(np.mean([len(segment) for segment in tree.segments]))
    late = slice(40, None)
    assert np.mean(written[late]) < 4 * updates
    assert max(read[late]) < 8 * updates
    assert np.mean(layers[late]) < 8
    assert len(tree.files) < 150


def union(keys: float, runs: list[RunRef]) -> int:
    """The expected number of different keys in runs of random keys out of so many."""
    return round(keys * (1 - np.prod([1 - min(run.rows / keys, 1) for run in runs])))


def test_rows_that_do_not_add_up_are_refused() -> None:
    tree = layered(Tree.empty(), file_of("a", spread({1: 1, 2: 2})))
    short = WrittenFile(FileRef("b", 3, 0, 0), tuple(spread({1: 2})))
    with pytest.raises(DamagedFileError, match=r"b: has 3 rows, but 2 of them are in the tree"):
        layered(tree, short)
    with pytest.raises(DamagedFileError, match="b: has 9 rows"):
        tree.replace([([Merge(1, 1)], [file_of("b", spread({1: 1, 2: 8}))])])
    with pytest.raises(ValueError, match="planned on another tree"):
        tree.replace([([Merge(1, 2)], [])])


def test_who_shares_a_segment_reads_its_own_runs_alone() -> None:
    one, other = [0b01] * SEGMENTS, [0b10] * SEGMENTS
    tree = layered(Tree.empty(), file_of("base", spread({1: 9})))
    deltas = [file_of(name, spread({1: 2, 2: 2})) for name in ("a", "b")]
    tree = tree.add([(deltas[:1], one), (deltas[1:], other)])
    assert [run.file for run in tree.runs(1, 0b01)] == ["a", "base"]
    assert [run.file for run in tree.runs(1, 0b10)] == ["b", "base"]
    assert [run.file for run in tree.runs(2, 0b10)] == ["b"]
    assert [run.file for run in tree.runs(1, 0b11)] == ["a", "b", "base"]
    assert {ref.name for ref in tree.pack().refs(one)} == {"a", "base"}
    made = [file_of(name, spread({1: 5})) for name in ("c", "d")]
    tree = tree.replace(
        [([Merge(1, 2, 0b01)], made[:1]), ([Merge(1, 2, 0b10)], made[1:])],
    )
    assert [run.file for run in tree.runs(1, 0b10)] == ["d"]
    assert tree.segments[1] == ((RunRef("c", 5, 0b01), RunRef("d", 5, 0b10)),)
    assert set(tree.files) == {"a", "b", "c", "d"}  # of which two have rows of segment 2
