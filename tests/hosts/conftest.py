"""Hosts for tests, where this machine allows them."""

from collections.abc import Iterator

import pytest

from lab.hosts.hosts import Hosts, unavailable

MEGABITS_100 = 100_000_000  # bits a second


@pytest.fixture(autouse=True, scope="session")
def _namespaces() -> None:
    if (missing := unavailable()) is not None:
        pytest.skip(missing)


@pytest.fixture
def hosts(_namespaces: None) -> Iterator[Hosts]:
    """Three hosts without anything on them."""
    with Hosts(["a", "b", "c"], rate=MEGABITS_100) as hosts:
        yield hosts
