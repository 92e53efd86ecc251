"""The best records of a key: ties, nulls, NaN, columns of all types, and what is refused."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import ConfigError
from godwit.operators import AggregateOperator
from tests.support.aggregate_oracle import KINDS
from tests.support.tables import Row, Worker

SCHEMA = pa.schema({"k": pa.int64(), "price": pa.float64(), "who": pa.string(), "n": pa.int32()})
NAN, INF = math.nan, math.inf
PRICES = st.none() | st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5])
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 2),
        PRICES,
        st.none() | st.text("ab", max_size=2),
        st.none() | st.integers(0, 2),
    ),
    max_size=20,
)


def worker(schema: pa.Schema = SCHEMA, **functions: gw.Aggregate) -> Worker:
    return Worker(AggregateOperator.of("a", "k", functions, schema), schema)


def in_order(row: tuple[Any, ...]) -> Any:
    """Nulls first, NaN last."""
    return [
        (value is not None, value != value, "" if value is None or value != value else value)
        if isinstance(value, str | None)
        else (True, value != value, 0 if value != value else value)
        for value in row
    ]


@given(st.lists(RECORDS, min_size=1, max_size=3), st.integers(1, 4), st.booleans())
def test_they_are_the_first_in_the_order_of_all_columns(
    epochs: list[list[Row]], n: int, smallest: bool
) -> None:
    """Whatever epochs they come in, and whichever of -0.0 and 0.0 is first."""
    of = ["who", "price", "n"]
    one = worker(best=gw.top(n, by="price", of=of, smallest=smallest))
    found = {row[0]: row[1] for rows in epochs for row in one.feed(rows)}
    for key, best in found.items():
        rows = [row[1:] for rows in epochs for row in rows if row[0] == key and row[1] is not None]
        rows = [(price + 0.0, who, number) for price, who, number in rows]
        wanted = sorted(rows, key=in_order, reverse=not smallest)[:n]
        assert repr([tuple(row[c] for c in ("price", "who", "n")) for row in best]) == repr(wanted)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_columns_of_each_type_decide_between_equals(kind: str, data: st.DataObject) -> None:
    type_, values = KINDS[kind]
    schema = pa.schema({"k": pa.int64(), "by": pa.int64(), "v": type_})
    rows = data.draw(st.lists(st.tuples(st.just(1), st.integers(1, 2), values), max_size=8))
    one = worker(schema, best=gw.top(3, by="by", of="v"))
    found = [best for cut in (rows[::2], rows[1::2]) for _, best in one.feed(cut)]
    order = [(by, v.encode() if isinstance(v, str) else v, v) for _, by, v in rows]
    wanted = [{"v": v} for *_, v in sorted(order, reverse=True)[:3]]
    assert (found[-1] if found else []) == wanted


def test_what_is_kept_is_the_record_by_which_it_is_chosen_and_what_is_shown() -> None:
    one = worker(best=gw.top(2, by="price", of=["who", "n"]))
    one.feed([(1, 5.0, "a", 1), (1, 7.0, "b", 2), (1, 6.0, None, None), (1, None, "c", 9)])
    (row,) = one.feed([(1, 6.5, "d", 3)])
    assert row == (1, [{"who": "b", "n": 2}, {"who": "d", "n": 3}])
    assert one.operator.tables[0].value.field("best").type == pa.list_(
        pa.struct({"price": pa.float64(), "who": pa.string(), "n": pa.int32()})
    )


def test_a_checkpoint_tells_tops_apart() -> None:
    tops = [
        gw.top(1, by="n", of="n"),
        gw.top(2, by="n", of="n"),
        gw.top(1, by="price", of="n"),
        gw.top(1, by="n", of="price"),
        gw.top(1, by="n", of=["n", "price"]),
        gw.top(1, by="n", of="n", smallest=True),
    ]
    assert len(set(map(str, tops))) == len(tops)


@pytest.mark.parametrize(
    ("n", "of", "message"),
    [
        (0, "n", r"keeps at least one record, not 0"),
        (True, "n", r"keeps at least one record, not True"),
        (1.5, "n", r"keeps at least one record, not 1.5"),
        (1, [], r"needs the columns to keep"),
        (1, ["n", "n"], r"names column 'n' twice"),
        (1, "tags", r"column 'tags' is of type list<.*>, which has no order"),
        (1, "no", r"column 'no' is not in the input"),
    ],
)
def test_refuses(n: Any, of: Any, message: str) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(ConfigError, match=message):
        worker(schema, best=gw.top(n, by="price", of=of))
