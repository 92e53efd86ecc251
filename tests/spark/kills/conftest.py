"""Applications to be killed."""

from functools import partial

import pytest

from tests.support.kills.running import Application, Launch


@pytest.fixture(scope="session")
def launch(java: str) -> Launch:
    return partial(Application, java=java)
