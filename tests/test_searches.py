"""Searches of `make check` and `make test` are the same in each run, and in each process."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.skipif(not settings().derandomize, reason="`make soak` searches elsewhere each time")
def test_what_is_loaded_changes_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    @settings(max_examples=100)
    @given(st.integers())
    def search(number: int) -> None:
        drawn.append(number)

    search()
    (tmp_path / "constants.py").write_text(f"NUMBERS = {[7**n for n in range(20, 60)]}")
    spec = spec_from_file_location("constants", tmp_path / "constants.py")
    assert spec is not None
    monkeypatch.setitem(sys.modules, "constants", module_from_spec(spec))
    first, drawn[:] = [*drawn], []
    search()
    assert drawn == first
