"""Reading lists of many keys takes few scans, in whatever order the keys come."""

import random

import numpy as np
import pyarrow as pa
import pytest

from godwit.model.hashing import hash_rows
from godwit.model.keys import distinct
from godwit.operators.cells.read_ahead import ReadAhead
from godwit.operators.definition import POSITION
from godwit.state.table import UPSERT, TableSpec
from tests.support.tables import DictTable

KEYS = 2000


@pytest.mark.parametrize("in_order", [True, False])
def test_few_scans(in_order: bool) -> None:
    key, sub = pa.schema([("k", pa.int64())]), pa.schema([(POSITION, pa.int64())])
    table = DictTable(TableSpec("list", key, sub, pa.schema([("v", pa.int64())])))
    keys = pa.table({"k": np.arange(KEYS)})
    groups = distinct(hash_rows(keys), keys, ordered=False)
    numbers = groups.keys.column("k").to_pylist()
    table.apply(
        pa.table(
            [
                pa.array(np.repeat(groups.hashes, 2)),
                pa.array(np.full(2 * KEYS, UPSERT, np.int8)),
                pa.array(np.repeat(numbers, 2)),
                pa.array(np.tile([0, 1], KEYS)),
                pa.array(np.repeat(numbers, 2) * 10 + np.tile([0, 1], KEYS)),
            ],
            schema=table.spec.schema,
        )
    )
    order = list(range(KEYS))
    if not in_order:
        random.Random(1).shuffle(order)
    ahead = ReadAhead(groups, table, in_order)
    for group in order:
        number = numbers[group]
        assert ahead.read(group).values == [10 * number, 10 * number + 1]
        assert ahead.count(group) == 2
    assert table.scans < 20
