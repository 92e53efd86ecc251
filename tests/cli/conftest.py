"""Queries that commands ask: one at rest, and one that moves."""

from pathlib import Path

import pytest

from godwit.migration.strategies import fluid
from godwit.model.routing import Routing
from tests.support.command_line import Running
from tests.support.simulated import publish, simulate, words


def run_query(checkpoint: Path, bins: int) -> Running:
    # All epochs are retained, however many run while a command waits.
    sim = simulate(checkpoint, workers=2, bins=bins, retention=10_000)
    sim.feed(words("a", "b", "c", "a"))
    return Running(checkpoint, sim.driver)


@pytest.fixture
def query(tmp_path: Path) -> Running:
    return run_query(tmp_path, bins=16)


@pytest.fixture
def moving(tmp_path: Path) -> Running:
    """In the first of 3,072 epochs of a migration, which does not end before a command does."""
    query = run_query(tmp_path, bins=4096)
    query.driver.requests.migrate("counts", Routing.even(4096, 4), strategy=fluid())
    publish(query.driver, 1)
    return query
