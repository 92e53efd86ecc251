"""`godwit verify`: exit codes, what it prints, and one line for what it cannot audit."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from godwit.cli import main
from godwit.storage.local import LocalStore
from tests.support.damage import flip, new_files
from tests.support.simulated import drive, simulate, words


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    sim = simulate(tmp_path / "checkpoint")
    sim.feed(words("a", "b"))
    sim.feed(words("a"))
    return tmp_path / "checkpoint"


def test_a_sound_checkpoint(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(checkpoint)]) == 0
    found = capsys.readouterr()
    assert found.out == f"{checkpoint}: epochs 0 to 1, 4 files, 3 row versions: sound\n"
    assert found.err == ""


def test_a_file_url(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", checkpoint.as_uri()]) == 0
    assert capsys.readouterr().out.endswith("sound\n")


def test_a_damaged_checkpoint(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = [new_files(checkpoint, 0, kind)[0].name for kind in ("delta", "output")]
    for name in damaged:
        flip(checkpoint / "godwit" / name)
    assert main(["verify", str(checkpoint)]) == 1
    *findings, verdict = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in findings] == damaged
    assert verdict.endswith(": 2 problems")


def test_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(checkpoint), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "epochs": [0, 1],
        "files": 4,
        "row_versions": 3,
        "findings": [],
    }
    (checkpoint / "godwit/intents/1.json").unlink()
    assert main(["verify", "--json", str(checkpoint)]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding == {"place": "epoch 1", "problem": "its intent is missing"}


def _of_spark(path: Path) -> str:
    (path / "offsets").mkdir()
    return str(path)


def _empty(path: Path) -> str:
    drive(path)
    return str(path)


def _file(path: Path) -> str:
    (path / "file").write_text("text")
    return str(path / "file")


def _newer(path: Path) -> str:
    drive(path)
    layout = path / "godwit/format.json"
    layout.write_bytes(layout.read_bytes().replace(b'"format": 1', b'"format": 2'))
    return str(path)


CANNOT: dict[str, tuple[Callable[[Path], str], str]] = {
    "a directory that does not exist": (lambda path: str(path / "none"), "no Godwit checkpoint"),
    "a directory of something else": (_of_spark, "there is no Godwit checkpoint here"),
    "a file": (_file, "there is no Godwit checkpoint here"),
    "a checkpoint without epochs": (_empty, "it holds no committed epoch yet"),
    "a checkpoint of a newer version": (_newer, "format.json: has format 2"),
    "another filesystem": (lambda path: "s3a://bucket/query", "the filesystem 's3a' does not"),
    "another host": (lambda path: "file://host/query", "names the host 'host'"),
    "no name": (lambda path: "", "a checkpoint needs a location"),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_cannot_be_audited_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    make, expected = CANNOT[case]
    assert main(["verify", make(tmp_path)]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    (line,) = found.err.splitlines()
    assert line.startswith("godwit: ")
    assert expected in line


def test_an_unreadable_checkpoint_is_one_line(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStore, name: str) -> bytes:
        raise PermissionError(13, "Permission denied", self.address(name))

    monkeypatch.setattr(LocalStore, "read", refuse)
    assert main(["verify", str(checkpoint)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("/godwit/format.json: permission denied")


@pytest.mark.parametrize("arguments", [[], ["verify"], ["verify", "a", "b"], ["migrate"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("--help")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--help"])
    assert ended.value.code == 0
    assert "godwit verify /data/checkpoints/counts --json" in capsys.readouterr().out
