"""The example of the README says when its figures mean nothing."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "live_migration.py"


@pytest.fixture(scope="module")
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("live_migration", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("slowest", "busy"), [(0.46, False), (18.0, True)])
def test_a_busy_machine_compares_nothing(
    demo: Any, slowest: float, busy: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slowest of ten seconds in which nothing moves."""
    waits = [(float(second), 0.39) for second in range(15, 35)]
    waits[3] = (waits[3][0], slowest)
    demo.report([demo.Run("paced", waits, 25.0, 30.0, 2**20, True)])
    told = capsys.readouterr().out
    assert ("the machine was too busy to compare" in told) is busy
    assert "every count is exactly right: True" in told
