from godwit.planner.chain import Chain
from lab.workloads.hourly import LEAST, MOST, generate, hourly_nodes


def test_the_stored_series_is_that_of_its_seed() -> None:
    assert hourly_nodes() == generate()


def test_another_seed_has_another_series() -> None:
    assert generate(1) != generate(2)


def test_a_month_holds_all_numbers_of_nodes_and_migrations_from_each() -> None:
    month = [nodes for day in hourly_nodes()[:31] for nodes in day]
    chain = Chain.learn(month)
    assert chain.nodes == tuple(range(LEAST, MOST + 1))
    assert all(len(chain.row(nodes)) > 1 for nodes in chain.nodes)
