"""Reading by key: get, scan and rows agree with a dictionary after any history and any merges."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from godwit.state.merge import merge
from godwit.state.run import Run
from godwit.state.table import TableSpec
from godwit.state.view import View
from tests.support.state_histories import (
    KINDS,
    Change,
    Key,
    Kind,
    Model,
    apply,
    deltas,
    kinds,
    needles,
    order_of,
    read,
    run_of,
    tuples,
    view_of,
)


@given(kinds, st.data())
def test_reading_agrees_with_a_dictionary(kind: Kind, data: st.DataObject) -> None:
    runs: list[Run] = []
    model: Model = {}
    for epoch in range(data.draw(st.integers(1, 6))):
        delta = data.draw(deltas(kind))
        model = apply(model, delta)
        runs.insert(0, run_of(kind, delta, epoch))
        if data.draw(st.booleans()):
            start = data.draw(st.integers(0, len(runs) - 1))
            stop = data.draw(st.integers(start + 1, len(runs)))
            runs[start:stop] = [merge(runs[start:stop], kind.spec, final=stop == len(runs))]
        check(kind, runs, model, data.draw(st.permutations(kind.keys)))


def check(kind: Kind, runs: Sequence[Run], model: Model, keys: Sequence[Key]) -> None:
    view = view_of(kind, runs)
    for some in (keys, keys[: len(keys) // 2], keys[:1], []):
        hashes, table = needles(kind, some)
        sought = tuples(table)
        index, rows = view.scan(hashes, table)
        assert rows.schema == pa.schema([*kind.spec.sub, *kind.spec.value])
        assert list(zip(index.tolist(), tuples(rows), strict=True)) == [
            (i, (*sub, *value))
            for i, key in enumerate(sought)
            for sub, value in sorted(model.get(key, {}).items(), key=lambda kv: order_of(kv[0]))
        ]
        if not len(kind.spec.sub):
            found, values = view.get(hashes, table)
            assert values.schema == kind.spec.value
            assert found.tolist() == [key in model for key in sought]
            absent = {(): (None, None)}
            assert tuples(values) == [model.get(key, absent)[()] for key in sought]
    everything = list(view.rows())
    assert read(kind, everything) == model
    assert all(not run.rows["_op"].to_numpy().any() for run in everything)


def test_only_the_segments_of_the_keys_are_opened() -> None:
    opened: list[int] = []

    def segments(segment: int) -> list[Run]:
        opened.append(segment)
        return []

    view = View(KINDS["value"].spec, segments)
    hashes = np.array([0, 1, 5 << 58, 2**64 - 1], np.uint64)
    keys = pa.table({"k": [1, 2, 3, 4]})
    found, values = view.get(hashes, keys)
    assert opened == [0, 5, 63]
    assert not found.any()
    assert values.num_rows == 4
    assert view.scan(hashes[1:3], keys.slice(1, 2))[0].tolist() == []
    assert opened == [0, 5, 63, 0, 5]


def test_the_list_of_one_key_is_not_copied() -> None:
    kind = KINDS["list"]
    runs: list[Run] = []
    for start in (0, 3):
        change = Change(rows={(pos,): (pos, None) for pos in range(start, start + 3)})
        runs.insert(0, merge([run_of(kind, {("a",): change})], kind.spec, final=True))
    _, rows = view_of(kind, runs).scan(*needles(kind, [("a",)]))
    assert rows["_pos"].to_pylist() == list(range(6))
    assert addresses(rows["_pos"]) == {a for run in runs for a in addresses(run.rows["_pos"])}


def addresses(column: pa.ChunkedArray) -> set[int]:
    return {chunk.buffers()[1].address for chunk in column.chunks if len(chunk)}


SUB = TableSpec(
    "t",
    pa.schema({"k": pa.int64()}),
    pa.schema({"s": pa.int64()}),
    pa.schema({"v": pa.int64()}),
)
IDENTITIES = [(k, s) for k in range(3) for s in range(4)]


def hash_of(key: int, sub: int) -> int:
    """Keys 0 and 1 collide, key 2 is in another segment; its first two rows collide."""
    return (key // 2 << 60) + max(sub, key // 2) * 3


@given(st.lists(st.dictionaries(st.sampled_from(IDENTITIES), st.none() | st.integers(0, 9))))
def test_rows_with_a_sub_key_are_found_alone_and_by_ranges_of_their_hash(
    epochs: list[dict[tuple[int, int], int | None]],
) -> None:
    model: dict[tuple[int, int], int] = {}
    runs: list[Run] = []
    for changed in epochs:
        rows = [(hash_of(*one), int(value is None), *one, value) for one, value in changed.items()]
        rows.sort(key=lambda row: row[0])
        named = [dict(zip(SUB.schema.names, row, strict=True)) for row in rows]
        runs.insert(0, Run.of(pa.Table.from_pylist(named, SUB.schema)))
        model = {one: v for one, v in (model | changed).items() if v is not None}

    def segment(number: int) -> list[Run]:
        return [run.between(number << 58, number + 1 << 58) for run in runs]

    view = View(SUB, segment)
    sought = sorted((hash_of(*one), *one) for one in IDENTITIES)
    hashes, keys, subs = (list(column) for column in zip(*sought, strict=True))
    found, values = view.get(np.array(hashes, np.uint64), pa.table({"k": keys, "s": subs}))
    wanted = [model.get((key, sub)) for key, sub in zip(keys, subs, strict=True)]
    assert values["v"].to_pylist() == wanted
    assert found.tolist() == [value is not None for value in wanted]
    lows = np.array([0, 6, 1 << 60], np.uint64)
    highs = np.array([3, 6, (1 << 60) + 3], np.uint64)
    rows = view.between(lows, highs)
    assert sorted(zip(*(rows[name].to_pylist() for name in "ksv"), strict=True)) == sorted(
        (*one, value)
        for one, value in model.items()
        if any(low <= hash_of(*one) <= high for low, high in zip(lows, highs, strict=True))
    )
    assert rows["_hash"].to_pylist() == sorted(rows["_hash"].to_pylist())
