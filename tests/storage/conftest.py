"""Servers of objects, each started by the first test that needs it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.object_gateway import Gateway, gateway
from tests.support.object_servers import KINDS, ObjectServer


@pytest.fixture(scope="session")
def object_server() -> Iterator[Callable[[str], ObjectServer]]:
    """A server of a kind of `KINDS`; a test for which it cannot be started is skipped."""
    with ExitStack() as stack:
        started: dict[str, ObjectServer] = {}

        def server(name: str) -> ObjectServer:
            if missing := KINDS[name].missing():
                pytest.skip(missing)
            if name not in started:
                started[name] = stack.enter_context(KINDS[name].start())
            return started[name]

        yield server


@pytest.fixture
def objects() -> Iterator[Gateway]:
    """A server that does as the test wants."""
    with gateway() as made:
        yield made
