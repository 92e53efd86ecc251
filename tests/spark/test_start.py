"""What a start says, refuses and leaves behind when it fails; Spark is not asked."""

import os
import socket
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from godwit.errors import ConfigError
from godwit.log.history import Generation, History
from godwit.log.journal import Journal
from godwit.model.graph import Graph
from godwit.model.options import Options
from godwit.spark import start as starting
from godwit.spark.node import Node
from godwit.spark.start_check import check_checkpoint
from godwit.spark.unread_files import FileSource
from godwit.storage.local import LocalStore
from tests.support.simulated import COUNTS


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """In place of what asks Spark to begin."""
    launch = MagicMock()
    monkeypatch.setattr(FileSource, "all", lambda rows: ())
    for name in ("check_partials", "check_start", "_local_directory"):
        monkeypatch.setattr(starting, name, lambda *_: None)
    monkeypatch.setattr(starting, "check", lambda *_: 0)
    monkeypatch.setattr(starting, "_launch", launch)
    return launch


def start(checkpoint: Path) -> None:
    flow = MagicMock(graph=Graph.chain(["counts"]), operators={"counts": Node(COUNTS)})
    flow.rows.sparkSession.sparkContext.defaultParallelism = 2
    starting.start(
        flow,
        checkpoint,
        trigger=None,
        workers=2,
        options=Options(),
        initial=None,
        drop=(),
        after=None,
        listener=None,
        control=None,
    )


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_start_that_fails_after_it_took_the_checkpoint_says_that_it_ended(
    tmp_path: Path, launch: MagicMock, failure: type[BaseException]
) -> None:
    """Otherwise it would count as a query that runs, as long as the program goes on."""
    launch.side_effect = failure("no such table")
    with pytest.raises(failure, match="no such table"):
        start(tmp_path)
    (driver,) = History.inspect(tmp_path).generations()
    assert driver.ended
    assert driver.gone


def test_a_start_names_the_driver_that_it_takes_over_from(
    tmp_path: Path, launch: MagicMock, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path)
    assert caplog.messages == []
    start(tmp_path)
    assert caplog.messages == [
        f"taking over from driver 1, process {os.getpid()} on this host, which runs this query and "
        "will fail with FencedError"
    ]
    caplog.clear()
    Journal.open(tmp_path).end()
    start(tmp_path)
    assert caplog.messages == []


def test_a_driver_before_this_process_had_its_number_is_gone() -> None:
    """A container that starts again gives its processes the same numbers."""
    driver = Generation(1, socket.gethostname(), os.getpid(), time=0)
    assert driver.gone
    assert not driver.is_running


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file", r"/file is a file"),
        ("file/below/checkpoint", r"/file is a file"),
        ("/proc/checkpoint", "No such file or directory, at /proc"),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_refused(
    tmp_path: Path, launch: MagicMock, place: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    match = rf"^the checkpoint {tmp_path / place} cannot be written: .*{reason}\. Name a directory"
    with pytest.raises(ConfigError, match=match) as caught:
        start(tmp_path / place)
    assert caught.value.__suppress_context__
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_checkpoint_of_sparks_own_is_refused(tmp_path: Path, launch: MagicMock) -> None:
    for name in ("metadata", "offsets/0", "commits/0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=r"after=gw\.spark_checkpoint\(spark, '.*from-spark\.md"):
        start(tmp_path)
    assert not (tmp_path / "godwit").exists()


def test_a_checkpoint_in_what_the_query_reads_is_refused(tmp_path: Path) -> None:
    (tmp_path / "input" / "day=1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "input")
    source = FileSource(f"{tmp_path}/in*")
    for place in ("input", "input/day=1/checkpoint", "link/checkpoint"):
        with pytest.raises(ConfigError, match=r"/input, which the query reads .* outside of it"):
            check_checkpoint(LocalStore(tmp_path / place), [source])
    check_checkpoint(LocalStore(tmp_path / "inputs"), [FileSource(f"{tmp_path}/input")])
