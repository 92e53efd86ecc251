"""A feed of words, for tests on real Spark."""

from pathlib import Path

import pytest

from tests.spark.feed import Feed


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "input", "word string")
