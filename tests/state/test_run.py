"""Runs: rows in hash order, cut without a copy."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from godwit.model.routing import SEGMENTS
from godwit.state.run import Run, segment_of, segment_offsets


def numbers(hashes: list[int]) -> pa.Table:
    """A row a hash, numbered."""
    counted = pa.array(range(len(hashes)), pa.int64())
    return pa.table({"_hash": pa.array(hashes, pa.uint64()), "n": counted})


def test_a_run_is_one_chunk_and_slices_without_a_copy() -> None:
    parts = [numbers([1, 2]), numbers([]), numbers([2**63, 2**64 - 1])]
    run = Run.of(pa.concat_tables(parts))
    assert all(column.num_chunks == 1 for column in run.rows.columns)
    assert len(run) == 4
    part = run.slice(1, 3)
    assert part.hash.tolist() == part.rows["_hash"].to_pylist() == [2, 2**63]
    assert np.shares_memory(part.hash, run.hash)
    assert (
        part.rows["n"].chunk(0).buffers()[1].address == run.rows["n"].chunk(0).buffers()[1].address
    )


def test_a_run_without_rows_has_columns_of_one_chunk() -> None:
    run = Run.of(pa.concat_tables([numbers([]), numbers([])]))
    for empty in (run, run.slice(0, 0), Run.of(numbers([1])).slice(1, 1), run.between(0, 2**64)):
        assert len(empty) == 0
        assert all(column.num_chunks == 1 for column in empty.rows.columns)


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(0, 2**64), st.integers(0, 2**64))
def test_between_is_the_rows_of_the_range(hashes: list[int], a: int, b: int) -> None:
    low, high = sorted((a, b))
    run = Run.of(pa.table({"_hash": pa.array(sorted(hashes), pa.uint64())}))
    assert run.between(low, high).hash.tolist() == [h for h in sorted(hashes) if low <= h < high]


@given(st.lists(st.integers(0, 63) | st.integers(0, 2**64 - 1)))
def test_segment_offsets_delimit_the_segments(hashes: list[int]) -> None:
    array = np.array(sorted(hashes), np.uint64)
    offsets = segment_offsets(array)
    assert len(offsets) == SEGMENTS + 1
    for segment in range(SEGMENTS):
        part = array[offsets[segment] : offsets[segment + 1]]
        assert part.tolist() == array[segment_of(array) == segment].tolist()
