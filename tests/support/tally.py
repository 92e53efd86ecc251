"""How often each test has run, and failed, beside a processor-bound load.

`python -m tests.support.tally FILE [--runs N] [--load PROCESSES] [--only PYTEST ARGUMENTS]`

Runs the tiers `cluster` and `kill` until each of their tests has a line for each of N runs in FILE,
one line of JSON a test and run, with the commit. What was stopped goes on where it was: a run that
has begun is run to its end, without the tests that it has done. Exit code 1 if a test has failed.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from lab.tools.environment import git
from tests.support.processes import forks

TIERS = ("-m", "cluster or kill")
ENDS = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,  # all are done
)
BUSY = "while True: pass"


@dataclass(frozen=True, slots=True)
class Line:
    """What came of one test in one run."""

    commit: str
    run: int
    test: str
    passed: bool
    seconds: float


class Tally:
    """A plugin of pytest that leaves the tests out which a run has done, and notes the others."""

    def __init__(self, path: Path, run: int) -> None:
        self._path = path
        self._commit = git("describe", "--always", "--dirty")
        self._run = run
        self._done = {line.test for line in read(path) if line.run == run}
        self._phases: list[pytest.TestReport] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._done]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases.append(report)
        if report.when == "teardown":
            passed = not any(phase.failed for phase in self._phases)
            seconds = round(sum(phase.duration for phase in self._phases), 1)
            line = Line(self._commit, self._run, report.nodeid, passed, seconds)
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(line)) + "\n")
            self._phases = []


def read(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [Line(**json.loads(text)) for text in path.read_text().splitlines()]


def table(lines: Sequence[Line]) -> str:
    """Those that failed most come first.

    >>> lines = [("a", True, 2.0), ("b", True, 3.0), ("b", False, 4.0)]
    >>> print(table([Line("", run, *line) for run, line in zip([0, 0, 1], lines)]))
    runs  failed  longest  test
       2       1      4 s  b
       1       0      2 s  a
    """
    runs, failed = Counter(line.test for line in lines), Counter[str]()
    longest = dict.fromkeys(runs, 0.0)
    for line in lines:
        failed[line.test] += not line.passed
        longest[line.test] = max(longest[line.test], line.seconds)
    return "\n".join(
        [
            "runs  failed  longest  test",
            *(
                f"{runs[test]:4}  {failed[test]:6}  {longest[test]:5.0f} s  {test}"
                for test in sorted(runs, key=lambda test: (-failed[test], test))
            ),
        ]
    )


@contextmanager
def load(processes: int) -> Iterator[None]:
    """As many processes that compute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def play(path: Path, run: int, arguments: Sequence[str]) -> None:
    sys.exit(pytest.main(["-q", *arguments], plugins=[Tally(path, run)]))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--load", type=int, default=2, metavar="PROCESSES")
    parser.add_argument("--only", nargs=argparse.REMAINDER, help="which tests, for pytest")
    given = parser.parse_args(arguments)
    with load(given.load):
        for run in range(given.runs):
            told = given.file, run, given.only or TIERS
            process = forks().Process(target=play, args=told)
            process.start()
            process.join()
            if process.exitcode not in ENDS:
                break
    lines = read(given.file)
    print(table(lines))
    return int(not all(line.passed for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
