"""Keys: comparing and grouping them agrees with Python's tuples."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.model.keys import by_hash, distinct, equal, less, neighbours
from tests.support.state_histories import KINDS, Key, Kind, hash_of, order_of, tuples


def keys_of(kind: Kind, keys: list[Key]) -> pa.Table:
    schema = kind.spec.key
    columns = [pa.array([k[i] for k in keys], field.type) for i, field in enumerate(schema)]
    return pa.table(columns, schema=schema)


def samples() -> st.SearchStrategy[tuple[Kind, list[Key]]]:
    return st.sampled_from(sorted(KINDS)).flatmap(
        lambda name: st.tuples(
            st.just(KINDS[name]), st.lists(st.sampled_from(KINDS[name].keys), max_size=30)
        )
    )


@given(samples(), st.integers(1, 7))
def test_comparing_rows(sample: tuple[Kind, list[Key]], chunk: int) -> None:
    kind, keys = sample
    table = keys_of(kind, keys)
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=chunk), table.schema)
    pairs = list(pairwise(keys))
    assert equal(table, chunked).all()
    assert neighbours(equal, chunked).tolist() == [a == b for a, b in pairs]
    assert neighbours(less, chunked).tolist() == [order_of(a) < order_of(b) for a, b in pairs]


@given(samples(), st.booleans())
def test_groups_hold_the_records_of_their_key(
    sample: tuple[Kind, list[Key]], ordered: bool
) -> None:
    kind, keys = sample
    if ordered:
        keys = sorted(keys, key=lambda key: (hash_of(key), order_of(key)))
    hashes = np.array([hash_of(key) for key in keys], np.uint64)
    groups = distinct(hashes, keys_of(kind, keys), ordered)
    order = list(range(len(keys))) if groups.order is None else groups.order.tolist()
    assert (groups.order is None) == ordered
    assert sorted(order) == list(range(len(keys)))

    found = tuples(groups.keys)
    assert found == sorted(set(keys), key=lambda key: (hash_of(key), order_of(key)))
    assert groups.hashes.tolist() == [hash_of(key) for key in found]
    bounds = pairwise([*groups.starts.tolist(), len(keys)])
    for key, (start, end) in zip(found, bounds, strict=True):
        assert order[start:end] == [i for i, k in enumerate(keys) if k == key]


HASH_LISTS: dict[str, Any] = {
    "none": [],
    "one": [7],
    "equal": [5] * 9,
    "low bits differ": [*range(40)],
    "high bits differ": [i << 57 for i in range(100)],
    "both": [(i % 7) << 60 | i % 5 for i in range(200)],
}


@pytest.mark.parametrize("name", HASH_LISTS)
def test_by_hash_is_a_stable_sort(name: str) -> None:
    random.Random(1).shuffle(values := list(HASH_LISTS[name]))
    hashes = np.array(values, np.uint64)
    order, found = by_hash(hashes)
    assert order.tolist() == np.argsort(hashes, kind="stable").tolist()
    assert found.tolist() == np.sort(hashes).tolist()
