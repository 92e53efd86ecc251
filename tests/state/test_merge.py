"""Merging: a merged run reads like the runs it was made of, wherever it lies among others."""

from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.state.merge import merge
from godwit.state.run import Run
from godwit.state.table import CLEAR, UPSERT
from tests.support.state_histories import (
    KINDS,
    Change,
    Delta,
    Kind,
    Model,
    apply,
    deltas,
    hash_of,
    kinds,
    order_of,
    read,
    run_of,
    split,
    tuples,
)


@given(kinds, st.data())
def test_a_merged_run_reads_like_its_runs(kind: Kind, data: st.DataObject) -> None:
    history = data.draw(st.lists(deltas(kind), min_size=1, max_size=6))
    runs = [run_of(kind, delta, seed) for seed, delta in enumerate(history)][::-1]
    start = data.draw(st.integers(0, len(runs) - 1))
    stop = data.draw(st.integers(start + 1, len(runs)))
    merged = merge(runs[start:stop], kind.spec, final=stop == len(runs))
    check_form(kind, merged, final=stop == len(runs))

    model: Model = {}
    for delta in history:
        model = apply(model, delta)
    assert read(kind, runs) == model
    assert read(kind, [*runs[:start], merged, *runs[stop:]]) == model


@given(kinds, st.data())
def test_merging_step_by_step_gives_the_same_run(kind: Kind, data: st.DataObject) -> None:
    history = data.draw(st.lists(deltas(kind), min_size=3, max_size=6))
    runs = [run_of(kind, delta, seed) for seed, delta in enumerate(history)][::-1]
    at = data.draw(st.integers(1, len(runs) - 1))
    newer = merge(runs[:at], kind.spec, final=False)
    older = merge(runs[at:], kind.spec, final=False)
    for final in (False, True):
        whole = merge(runs, kind.spec, final)
        assert merge([newer, older], kind.spec, final).rows.equals(whole.rows)


def check_form(kind: Kind, run: Run, final: bool) -> None:
    """Hash order, one row per identity, keys contiguous, CLEAR first, then by sub-key."""
    assert run.rows.schema == kind.spec.schema
    assert all(column.num_chunks == 1 for column in run.rows.columns)
    rows = tuples(run.rows)
    assert run.hash.tolist() == sorted(row[0] for row in rows) == [row[0] for row in rows]
    keys = [key for key, _ in groupby(split(kind, row)[0] for row in rows)]
    assert len(keys) == len(set(keys))
    for key, of_key in groupby(rows, key=lambda row: split(kind, row)[0]):
        ops, subs = zip(*((row[1], split(kind, row)[1]) for row in of_key), strict=True)
        clears = int(ops[0] == CLEAR)
        assert CLEAR not in ops[clears:]
        assert list(subs[clears:]) == sorted(set(subs[clears:]), key=order_of)
        assert not final or set(ops) == {UPSERT}
        assert {row[0] for row in rows if split(kind, row)[0] == key} == {hash_of(key)}


def test_a_clear_hides_older_runs_only() -> None:
    kind = KINDS["list"]
    older: Delta = {("a",): Change(rows={(0,): (1, None), (1,): (2, None)})}
    newer: Delta = {("a",): Change(clear=True, rows={(1,): (3, None)})}
    runs = [run_of(kind, newer), run_of(kind, older)]
    assert [row[1:4] for row in tuples(merge(runs, kind.spec, final=False).rows)] == [
        (CLEAR, "a", None),
        (UPSERT, "a", 1),
    ]
    assert read(kind, [merge(runs, kind.spec, final=True)]) == {("a",): {(1,): (3, None)}}


@pytest.mark.parametrize("final", [False, True])
def test_merging_many_rows(final: bool) -> None:
    """Enough rows that only the vectorised paths can be taken, against a plain dictionary."""
    rng = np.random.default_rng(0)
    spec = KINDS["value"].spec
    runs: list[Run] = []
    expected: dict[int, tuple[int, int]] = {}
    for epoch in range(4):
        keys = np.sort(rng.choice(50_000, 20_000, replace=False)).astype(np.uint64)
        ops = rng.integers(0, 2, len(keys), dtype=np.int8)
        columns = [keys * 2**48, ops, keys.astype(np.int64), np.full(len(keys), epoch)]
        arrays = [*map(pa.array, columns), pa.nulls(len(keys), spec.value.types[1])]
        runs.insert(0, Run.of(pa.table(arrays, schema=spec.schema)))
        expected |= {int(k): (int(op), epoch) for k, op in zip(keys, ops, strict=True)}
    rows = merge(runs, spec, final).rows
    found = {key: (op, n) for _, op, key, n, _ in tuples(rows)}
    assert found == {k: v for k, v in expected.items() if not final or v[0] == UPSERT}
