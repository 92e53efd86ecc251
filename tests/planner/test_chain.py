from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import ConfigError
from godwit.planner.chain import Chain, nodes_for
from tests.support import planner_model as model


@given(st.lists(st.integers(1, 5), min_size=2, max_size=60))
def test_a_chain_has_the_shares_of_the_migrations_seen(history: list[int]) -> None:
    if len(set(history)) < 2:
        with pytest.raises(ConfigError, match="no migration"):
            Chain.learn(history)
        return
    chain = Chain.learn(history)
    assert set(chain.nodes) == set(history)
    steps = [(a, b) for a, b in pairwise(history) if a != b]
    for before in chain.nodes:
        others = [count for count in chain.nodes if count != before]
        left = [after for a, after in steps if a == before] or others
        for after, share in chain.row(before).items():
            assert share == pytest.approx(left.count(after) / len(left))
        assert set(chain.row(before)) == set(left)


@given(model.chains())
def test_a_chain_is_read_as_it_was_written(chain: Chain) -> None:
    assert Chain.from_json(chain.to_json()) == chain


def test_a_chain_is_a_file(tmp_path: Path) -> None:
    chain = Chain.learn([2, 3, 4, 2])
    chain.save(tmp_path / "chain.json")
    assert Chain.load(tmp_path / "chain.json") == chain


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"nodes": [1, 2]}',
        '{"nodes": [2, 1], "matrix": [[0, 1], [1, 0]]}',
        '{"nodes": [0, 1], "matrix": [[0, 1], [1, 0]]}',
        '{"nodes": [1, 2], "matrix": [[0, 1]]}',
        '{"nodes": [1, 2], "matrix": [[0, 1], [1]]}',
        '{"nodes": [1, 2], "matrix": [[0.5, 0.6], [1, 0]]}',
        '{"nodes": [1, 2], "matrix": [[-1, 2], [1, 0]]}',
    ],
)
def test_what_is_no_chain_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Chain.from_json(text)


def test_nodes_for_a_load_are_bounded() -> None:
    assert nodes_for([0, 1, 10, 10.1, 1e6], 10, least=1, most=16) == [1, 1, 1, 2, 16]
    with pytest.raises(ConfigError, match="capacity"):
        nodes_for([1], 0)
