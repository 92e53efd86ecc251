"""The audit finds every kind of planted damage and names it, and nothing else."""

import re
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from godwit.errors import CheckpointError
from godwit.inspect.audit import verify
from godwit.migration.strategies import all_at_once
from godwit.model import tree as trees
from godwit.model.ids import Epoch
from godwit.model.routing import Routing, Update
from tests.support.damage import (
    Body,
    edit_intent,
    edit_manifest,
    edit_trees,
    flip,
    new_files,
    reseal,
    rewrite,
    runs_of,
    truncate,
)
from tests.support.simulated import content, drive, simulate, words

LAST = 9
ALPHABET = [chr(ord("a") + i) for i in range(26)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten epochs of two generations, with merges, a migration, open requests and an open epoch."""
    checkpoint = tmp_path_factory.mktemp("sound")
    with patch.object(trees, "MAX_LAYERS", 2):
        sim = simulate(checkpoint)
        for epoch in range(LAST + 1):
            if epoch == 4:
                sim.migrate(Routing.even(16, 3), strategy=all_at_once())
            if epoch == 6:
                sim.restart()
            sim.feed(words(*ALPHABET[epoch : epoch + 8], *ALPHABET[:4]))
        sim.schedule([Update(LAST + 5, 0, 1)])
        sim.driver.begin(Epoch(LAST + 1), "simulation", str(LAST + 1))
    return checkpoint


@pytest.fixture
def checkpoint(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "checkpoint"))


def state(checkpoint: Path, epoch: int, kind: str, worker: int = 0) -> Path:
    return checkpoint / "godwit" / new_files(checkpoint, epoch, kind)[worker].name


def test_a_sound_checkpoint_has_no_findings_and_is_not_changed(checkpoint: Path) -> None:
    before = content(checkpoint)
    progress: list[tuple[int, int]] = []
    report = verify(checkpoint, lambda *done: progress.append(done))
    assert report.findings == []
    assert report.epochs == tuple(range(LAST + 1))
    assert report.files == len(list(checkpoint.glob("godwit/state/**/*.arrow"))) + len(
        list(checkpoint.glob("godwit/outputs/**/*.parquet"))
    )
    assert report.row_versions > 0
    assert progress == [(n, report.files) for n in range(report.files + 1)]
    assert content(checkpoint) == before


def test_a_checkpoint_without_epochs_cannot_be_audited(tmp_path: Path) -> None:
    drive(tmp_path)
    with pytest.raises(CheckpointError, match="holds no committed epoch yet"):
        verify(tmp_path)


# -- files -----------------------------------------------------------------------------------------

FOREIGN = pa.table({"a": [1, 2]})


def _replace_by_foreign_file(checkpoint: Path) -> None:
    with pa.ipc.new_file(str(state(checkpoint, 3, "delta")), FOREIGN.schema) as writer:
        writer.write_table(FOREIGN)


def _foreign_with_receipt(checkpoint: Path) -> None:
    _replace_by_foreign_file(checkpoint)
    reseal(checkpoint, new_files(checkpoint, 3, "delta")[0].name)


def _swap(checkpoint: Path) -> None:
    one, other = state(checkpoint, 3, "delta", 0), state(checkpoint, 3, "delta", 1)
    one.rename(checkpoint / "aside")
    other.rename(one)
    (checkpoint / "aside").rename(other)


def _delta(checkpoint: Path, epoch: int = 3) -> str:
    return new_files(checkpoint, epoch, "delta")[0].name


def _other_worker(checkpoint: Path) -> None:
    def change(meta: Body) -> None:
        meta["worker"] = 1 - meta["worker"]

    rewrite(checkpoint, _delta(checkpoint), meta=change)


def _reverse_rows(checkpoint: Path) -> None:
    def change(rows: pa.Table) -> pa.Table:
        return rows.take(list(reversed(range(rows.num_rows))))

    rewrite(checkpoint, _delta(checkpoint), rows=change)


def _shift_index(checkpoint: Path) -> None:
    def change(meta: Body) -> None:
        meta["offsets"] = [0, *meta["offsets"][:-2], meta["offsets"][-1]]

    rewrite(checkpoint, _delta(checkpoint), meta=change)


def _set(**values: object) -> Callable[[Body], None]:
    return lambda body: body.update(values)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte in a delta": (
        lambda c: flip(state(c, 3, "delta")),
        "delta.*: its checksum is .*, not .* as receipted",
    ),
    "flipped byte in a merged run": (
        lambda c: flip(state(c, LAST, "merge")),
        "merge.*: its checksum is",
    ),
    "flipped byte in an output file": (
        lambda c: flip(state(c, 3, "output")),
        "output.*: its checksum is",
    ),
    "flipped first byte": (lambda c: flip(state(c, 3, "delta"), 0), "delta.*: its checksum is"),
    "truncated delta": (
        lambda c: truncate(state(c, 3, "delta")),
        "delta.*: it has .* bytes, not .* as receipted",
    ),
    "truncated output file": (
        lambda c: truncate(state(c, 3, "output")),
        "output.*: it has .* bytes",
    ),
    "empty file": (lambda c: state(c, 3, "delta").write_bytes(b""), "delta.*: it has 0 bytes"),
    "missing delta": (
        lambda c: state(c, 3, "delta").unlink(),
        "delta.*: the file is missing",
    ),
    "missing merged run": (
        lambda c: state(c, LAST, "merge").unlink(),
        "merge.*: the file is missing",
    ),
    "missing output file": (
        lambda c: state(c, 3, "output").unlink(),
        "output.*: the file is missing",
    ),
    "files of two workers swapped": (_swap, "delta.*: it"),
    "foreign Arrow file": (_replace_by_foreign_file, "delta.*: it has .* bytes"),
    "foreign Arrow file with a receipt": (
        _foreign_with_receipt,
        "delta.*: it is not a state file of Godwit",
    ),
    "newer format of a state file": (
        lambda c: rewrite(c, _delta(c), meta=_set(format=2)),
        "delta.*: written by a newer version of Godwit .format 2",
    ),
    "state of another operator": (
        lambda c: rewrite(c, _delta(c), meta=_set(operator="sums")),
        "delta.*: it belongs to operator 'sums'",
    ),
    "state of another table": (
        lambda c: rewrite(c, _delta(c), meta=_set(table="other")),
        "delta.*: it belongs to operator 'counts', table 'other'",
    ),
    "state of another epoch": (
        lambda c: rewrite(c, _delta(c), meta=_set(epoch=99)),
        "delta.*: it says that it is of epoch 99, but epoch 3 wrote it",
    ),
    "delta of a worker that did not own the bin": (
        _other_worker,
        "delta.*: worker 1 wrote bin . at epoch 3, which belonged to worker 0",
    ),
    "rows out of order": (_reverse_rows, "delta.*: its rows are not in the order of their hash"),
    "wrong index of segments": (_shift_index, "delta.*: its index of segments does not fit"),
    "merge that nobody asked for": (
        lambda c: rewrite(c, _delta(c, 0), meta=_set(kind="merge")),
        "delta.*: it merged segment .*, which its epoch's intent did not ask for",
    ),
    "unknown kind of file": (
        lambda c: rewrite(c, _delta(c), meta=_set(kind="else")),
        "delta.*: its metadata is not that of a state file",
    ),
}

# -- records ---------------------------------------------------------------------------------------


def record(checkpoint: Path, name: str) -> Path:
    return checkpoint / "godwit" / f"{name}.json"


def _lose_old_run(checkpoint: Path) -> None:
    """The oldest run of a segment is gone since epoch 3, although only newer ones are merged."""
    name = _delta(checkpoint, 2)

    def change(tree: Body) -> None:
        layer, place = next(runs_of(tree, name))
        del layer[place : place + 3]

    edit_trees(checkpoint, range(3, 4), change)


def _lose_new_run(checkpoint: Path) -> None:
    name = _delta(checkpoint, 3)

    def change(tree: Body) -> None:
        layer, place = next(runs_of(tree, name))
        del layer[place : place + 3]

    edit_trees(checkpoint, range(3, 4), change)


def _lose_new_file(checkpoint: Path) -> None:
    name = _delta(checkpoint, LAST)

    def change(tree: Body) -> None:
        for layer, place in list(runs_of(tree, name)):
            del layer[place : place + 3]
        lost = [ref[0] for ref in tree["files"]].index(name)
        del tree["files"][lost]
        for layer in chain.from_iterable(tree["segments"]):
            layer[::3] = [number - (number > lost) for number in layer[::3]]

    edit_trees(checkpoint, range(LAST, LAST + 1), change)


def _wrong_rows_of_run(checkpoint: Path) -> None:
    """As many rows in all, but one more in one segment and one less in another."""
    name = _delta(checkpoint, LAST)

    def change(tree: Body) -> None:
        (one, here), (other, there) = list(runs_of(tree, name))[:2]
        one[here + 1] += 1
        other[there + 1] -= 1

    edit_trees(checkpoint, range(LAST, LAST + 1), change)


def _wrong_slices_of_run(checkpoint: Path) -> None:
    """All but those in which it has rows."""
    name = _delta(checkpoint, LAST)
    with pa.OSFile(str(checkpoint / "godwit" / name)) as source:
        hashes = pa.ipc.open_file(source).read_all().column("_hash").to_pylist()
    there = sum(1 << slice for slice in {hash >> 52 & 63 for hash in hashes})

    def change(tree: Body) -> None:
        for layer, place in runs_of(tree, name):
            layer[place + 2] = ~there

    edit_trees(checkpoint, range(LAST, LAST + 1), change)


RECORDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "manifest deleted in the middle": (
        lambda c: record(c, "manifests/5").unlink(),
        "epoch 6: the epoch before it is 4: some are missing",
    ),
    "flipped byte in a manifest": (
        lambda c: flip(record(c, "manifests/5")),
        "^manifests/5.json: is damaged: its checksum does not match",
    ),
    "truncated manifest": (
        lambda c: truncate(record(c, "manifests/5")),
        "^manifests/5.json: is truncated",
    ),
    "empty manifest": (
        lambda c: record(c, "manifests/5").write_bytes(b""),
        "^manifests/5.json: is damaged, or was not written by Godwit",
    ),
    "newer format of a manifest": (
        lambda c: record(c, "manifests/5").write_bytes(
            record(c, "manifests/5").read_bytes().replace(b'"format": 1', b'"format": 2', 1)
        ),
        "^manifests/5.json: has format 2",
    ),
    "manifest copied over another": (
        lambda c: shutil.copy(record(c, "manifests/4"), record(c, "manifests/5")),
        "^manifests/5.json: holds epoch 4",
    ),
    "manifest without its trees": (
        lambda c: edit_manifest(c, 5, lambda body: body["trees"]["counts"]["value"].clear()),
        "^manifests/5.json: is not a manifest that Godwit wrote",
    ),
    "tree with half a run": (
        lambda c: edit_manifest(
            c, 5, lambda body: body["trees"]["counts"]["value"]["segments"].insert(0, [[1]])
        ),
        "^manifests/5.json: its trees cannot be read",
    ),
    "missing intent": (lambda c: record(c, "intents/5").unlink(), "epoch 5: its intent is missing"),
    "flipped byte in an intent": (
        lambda c: flip(record(c, "intents/5")),
        "^intents/5.json: is damaged",
    ),
    "missing intent that later ones refer to": (
        lambda c: record(c, "intents/4").unlink(),
        "^intents/5.json: refers to the routing in intents/4.json, which is missing",
    ),
    "damaged intent of an open epoch": (
        lambda c: flip(record(c, f"intents/{LAST + 1}")),
        f"^intents/{LAST + 1}.json: is damaged",
    ),
    "generation going backwards": (
        lambda c: edit_manifest(c, 3, _set(generation=2)),
        "epoch 4: generation 1 follows 2",
    ),
    "published under an older generation than decided": (
        lambda c: edit_intent(c, 5, _set(generation=2)),
        "epoch 5: decided by generation 2, published by 1, newest is 2",
    ),
    "published under a generation that nobody took": (
        lambda c: edit_manifest(c, LAST, _set(generation=3)),
        f"epoch {LAST}: decided by generation 2, published by 3, newest is 2",
    ),
    "offsets of another input": (
        lambda c: edit_manifest(c, 5, _set(offsets="other")),
        "epoch 5: manifest and intent name different offsets",
    ),
    "another query": (
        lambda c: edit_intent(c, 5, _set(query="other")),
        "epoch 5: manifest and intent name different offsets",
    ),
    "segment that lost an old run": (
        _lose_old_run,
        "epoch 3: segment .* lost or gained a run that no merge of its intent accounts for",
    ),
    "segment that lost a new run": (
        _lose_new_run,
        "epoch 3: of the .* rows of its file .*delta.*, it names",
    ),
    "table that lost a new file": (
        _lose_new_file,
        f"epoch {LAST}: 'counts' gained .* rows, its receipts are of",
    ),
    "run of other rows": (_wrong_rows_of_run, "delta.*: it has .* rows of segment .*, not"),
    "run of other slices": (
        _wrong_slices_of_run,
        "delta.*: it(s tree names other slices| has rows .* in other slices than its tree names)",
    ),
    "merge that was not decided": (
        lambda c: edit_intent(c, LAST, lambda body: body["merges"]["counts"]["value"].clear()),
        f"epoch {LAST}: segment .* lost or gained a run",
    ),
    "damaged request": (
        lambda c: flip(record(c, "control/1")),
        "^control/1.json: is damaged",
    ),
    "missing generation": (
        lambda c: record(c, "generations/1").unlink(),
        "^generations/1.json: is missing",
    ),
    "damaged generation": (
        lambda c: truncate(record(c, "generations/1")),
        "^generations/1.json: is truncated",
    ),
}

DAMAGE = FILES | RECORDS

# Kinds of damage that show in other places too.
CONSEQUENCES = {
    "merge that was not decided",
    "missing intent that later ones refer to",
    "segment that lost a new run",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_planted_damage_is_found_and_named(checkpoint: Path, kind: str) -> None:
    plant, expected = DAMAGE[kind]
    plant(checkpoint)
    before = content(checkpoint)
    findings = [str(finding) for finding in verify(checkpoint).findings]
    assert any(re.search(expected, finding) for finding in findings), findings
    assert kind in CONSEQUENCES or all(re.search(expected, text) for text in findings), findings
    assert content(checkpoint) == before
