"""Applications to be killed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.kills.running import Application

Launch = Callable[[Path], Application]


@pytest.fixture(scope="session")
def launch(java: str) -> Launch:
    return partial(Application, java=java)
