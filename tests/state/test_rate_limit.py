"""The bound on what an executor reads: shared by its processes, and never in the way for long."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from godwit.state.rate_limit import RateLimit


class Clock:
    """Time that passes only when a test says so, or, if it `runs`, when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.runs = False

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds if self.runs else 0.0

    def limit(self, path: Path, *, yields: bool = False) -> RateLimit:
        return RateLimit(path, 100.0, yields=yields, clock=self.monotonic, sleep=self.sleep)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_comes_later_waits_for_those_before(tmp_path: Path, clock: Clock) -> None:
    one, other = (clock.limit(tmp_path / "cache" / "link") for _ in range(2))
    one.take(50)
    other.take(100)
    one.take(50)
    assert clock.slept == [0.5, 1.5, 2.0]


def test_what_nobody_took_is_not_saved_up(tmp_path: Path, clock: Clock) -> None:
    link = clock.limit(tmp_path / "link")
    link.take(50)
    clock.now += 60.0
    link.take(50)
    assert clock.slept == [0.5, 0.5]


def test_who_yields_waits_until_others_have_paused(tmp_path: Path, clock: Clock) -> None:
    clock.runs = True
    worker = clock.limit(tmp_path / "link")
    keeper = clock.limit(tmp_path / "link", yields=True)
    keeper.take(50)  # nobody else is there
    assert clock.now == 100.5
    worker.take(100)
    clock.now += 0.05  # it reads what it may
    keeper.take(50)
    assert clock.slept[2:] == pytest.approx([0.05, 0.5])
    assert clock.now == pytest.approx(102.1)


def test_nobody_waits_for_more_than_one_piece_of_who_yields(tmp_path: Path, clock: Clock) -> None:
    clock.limit(tmp_path / "link", yields=True).take(50)
    clock.limit(tmp_path / "link").take(100)
    assert clock.slept == [0.5, 1.5]


@pytest.mark.parametrize("content", [b"", b"half"])
def test_a_file_that_holds_no_instant_counts_as_new(
    content: bytes, tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "link").write_bytes(content)
    clock.limit(tmp_path / "link").take(50)
    assert clock.slept == [0.5]
    assert struct.unpack("=dd", (tmp_path / "link").read_bytes()) == (100.5, 100.5)


def test_where_no_file_can_be_each_is_bound_alone(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    link = clock.limit(tmp_path / "cache" / "link")
    link.take(50)
    link.take(50)
    assert clock.slept == [0.5, 0.5]


PROCESS = """
import sys, time
from pathlib import Path
from godwit.state.rate_limit import RateLimit

link = RateLimit(Path(sys.argv[1]), rate=100_000.0)
print("ready", flush=True)
sys.stdin.readline()
start = time.monotonic()
for _ in range(20):
    link.take(1_000)
print(start, time.monotonic())
"""


def test_processes_share_one_rate(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path / "link")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    spans = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=60)
        spans.append([float(instant) for instant in output.split()])
    starts, ends = zip(*spans, strict=True)
    assert max(ends) - min(starts) >= 2 * 20_000 / 100_000.0
