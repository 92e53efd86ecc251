"""A checkpoint, a cache, and a process that knows no file of either."""

from pathlib import Path

import pytest

from tests.support.cached import Clock, new_process


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return new_process(monkeypatch)


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"
