"""Reading by key: get, scan and rows agree with a dictionary after any history and any merges."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from godwit.state.merge import merge
from godwit.state.run import Run
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
