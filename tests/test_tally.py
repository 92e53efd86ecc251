"""The tally of flaky tests: each run is counted once, also when it was stopped."""

from pathlib import Path

from tests.support.tally import main, read

FLAKY = """
from pathlib import Path

def test_steady():
    pass

def test_flaky():
    marker = Path(__file__).with_name("seen")
    marker.touch(exist_ok=False)
"""


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    tests, tally = tmp_path / "test_flaky.py", tmp_path / "tally"
    tests.write_text(FLAKY)
    runs = ["--runs", "2", "--load", "0", "--only", str(tests)]
    assert main([str(tally), *runs]) == 1
    expected = [(0, "steady"), (0, "flaky"), (1, "steady"), (1, "flaky")]
    assert done(tally) == expected
    assert [line.passed for line in read(tally)] == [True, True, True, False]
    whole = tally.read_text().splitlines(keepends=True)
    tally.write_text("".join(whole[:3]))  # stopped before the last
    (tmp_path / "seen").unlink()
    assert main([str(tally), *runs]) == 0
    assert done(tally) == expected


def done(tally: Path) -> list[tuple[int, str]]:
    return [(line.run, line.test.rpartition("::test_")[2]) for line in read(tally)]
