"""Intents and manifests: written once, found again, pruned with care, not read when damaged."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit import faults
from godwit.errors import CheckpointError, DamagedFileError
from godwit.log import History, Journal
from godwit.log.records import FORMAT
from godwit.migration.migration import MigrationPhase, OpenMigration, OperatorMigrations
from godwit.model.ids import Epoch
from godwit.model.requests import MigrateRequest
from godwit.model.routing import Routing
from tests.support.log_samples import (
    EVEN,
    files_below,
    intent_of,
    journal_at,
    manifest_of,
    run,
    schedule_of,
)

OTHER = EVEN.assign({0: 1})


def test_a_new_checkpoint_is_empty(tmp_path: Path) -> None:
    journal = journal_at(tmp_path / "new" / "query")
    assert journal.generation == 1
    assert (journal.last(), journal.epochs()) == (None, [])
    (taken,) = journal.generations()
    assert (taken.number, taken.pid) == (1, os.getpid())


def test_what_was_begun_and_published_is_found_by_the_next_driver(tmp_path: Path) -> None:
    first = journal_at(tmp_path)
    first.publish(manifest_of(-1))
    run(first, 0, 1)
    second = journal_at(tmp_path)
    assert second.generation == 2
    assert second.epochs() == [-1, 0, 1]
    assert second.last() == second.manifest(1)
    intent, manifest = second.intent(1), second.manifest(1)
    assert intent is not None
    assert manifest is not None
    assert intent.generation == manifest.generation == 1
    assert intent.routings == {"counts": EVEN}
    assert second.intent(2) is None
    assert second.manifest(2) is None


def test_a_replay_gets_the_intent_that_was_decided(tmp_path: Path) -> None:
    first = journal_at(tmp_path).begin(intent_of(0))
    replayed = journal_at(tmp_path).begin(intent_of(0, {"counts": OTHER}))
    assert replayed == first


def test_an_epoch_is_not_replayed_with_other_input(tmp_path: Path) -> None:
    run(journal_at(tmp_path), 0)
    journal = journal_at(tmp_path)
    with pytest.raises(CheckpointError, match=r"epoch 0 was run before.*from one backup"):
        journal.begin(intent_of(0, offsets="other"))
    with pytest.raises(CheckpointError, match="epoch 0 was run before"):
        journal.publish(manifest_of(0, offsets="other"))


def test_fault_points_are_around_the_creates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_at(tmp_path)
    seen: list[tuple[str, str, int, bool, bool]] = []

    def handler(point: str, side: faults.Side, epoch: int) -> None:
        begun, published = bool(journal.intents()), bool(journal.epochs())
        seen.append((point, side, epoch, begun, published))

    monkeypatch.setattr(faults, "handler", handler)
    run(journal, 0)
    assert seen == [
        ("intent", "before", 0, False, False),
        ("intent", "after", 0, True, False),
        ("manifest", "before", 0, True, False),
        ("manifest", "after", 0, True, True),
    ]


def test_inspecting_takes_nothing_over_and_needs_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"{tmp_path}.*no Godwit checkpoint here"):
        History.inspect(tmp_path)
    assert os.listdir(tmp_path) == []
    journal = journal_at(tmp_path)
    run(journal, 0)
    before = files_below(tmp_path)
    assert Journal.inspect(tmp_path).last() == replace(manifest_of(0), generation=1)
    assert files_below(tmp_path) == before
    journal.check()


def test_a_large_routing_is_written_only_where_it_changes(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    large = Routing(random.integers(0, 64, 1 << 20, dtype=np.int32), 64)
    journal = journal_at(tmp_path)
    for epoch in range(3):
        journal.begin(intent_of(epoch, {"counts": large}))
    journal.begin(intent_of(3, {"counts": large.assign({5: 6})}))
    sizes = [(tmp_path / f"godwit/intents/{epoch}.json").stat().st_size for epoch in range(4)]
    assert min(sizes[0], sizes[3]) > 1_000_000
    assert max(sizes[1], sizes[2]) < 1_000
    found = History.inspect(tmp_path).intent(2)
    assert found is not None
    assert found.routings["counts"] == large


ROUTINGS = st.sampled_from([EVEN, OTHER, Routing.even(4, 3)])
STEPS = st.tuples(
    st.dictionaries(st.sampled_from("abc"), ROUTINGS),  # the routings of the next epoch
    st.integers(0, 8),  # how many epochs to retain
    st.booleans(),  # whether another driver takes over
)


@given(st.lists(STEPS, min_size=1, max_size=20))
def test_whatever_is_pruned_intents_still_resolve(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, Routing], int, bool]]
) -> None:
    root = tmp_path_factory.mktemp("prune")
    journal = journal_at(root)
    for epoch, (routings, retained, takeover) in enumerate(steps):
        journal.begin(intent_of(epoch, routings))
        journal.publish(manifest_of(epoch))
        journal.prune(Epoch(epoch + 1 - retained))
        journal = journal_at(root) if takeover else journal
        history = History.inspect(root)
        assert epoch in history.epochs()
        for kept in history.epochs():
            for reader in (journal, history):
                intent = reader.intent(kept)
                assert intent is not None
                assert intent.routings == steps[kept][0]
        referred = {since for kept in history.epochs() for since in history.since(kept).values()}
        assert set(history.intents()) == referred | set(history.epochs())
    shutil.rmtree(root)


def test_pruning_keeps_the_newest_manifest_an_open_epoch_and_open_requests(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    journal.begin(intent_of(0))
    journal.prune(Epoch(100))
    assert journal.intents() == [0]
    run(journal, 0, 1, 2)
    journal.begin(intent_of(3, {"counts": OTHER}))
    add = journal.requests.add
    done, open, mixed, newest = (
        add(schedule_of(epoch, *epochs)).id
        for epoch, epochs in [(1, [1]), (9, [9]), (1, [1, 9]), (1, [1])]
    )
    assert (done, newest) == (1, 4)
    journal.prune(Epoch(100))
    assert journal.epochs() == [2]
    assert journal.intents() == [0, 2, 3]  # 2 refers to 0
    assert journal.requests.ids() == [open, mixed, newest]


def test_pruning_keeps_requests_that_intents_are_about(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    run(journal, 0)
    target = MigrateRequest(0, "counts", EVEN, OTHER, "fluid", 0.0)
    ids = [journal.requests.add(target).id for _ in range(5)]
    opened = OpenMigration(2, MigrationPhase.MOVING, None)
    migrations = {"counts": OperatorMigrations(opened)}
    for epoch in (1, 2):
        journal.begin(replace(intent_of(epoch), taken=3, migrations=migrations))
        journal.publish(manifest_of(epoch))
    journal.prune(Epoch(1))
    assert journal.requests.ids() == [2, 4, 5]
    journal.begin(replace(intent_of(3), taken=4))
    journal.publish(manifest_of(3))
    journal.prune(Epoch(3))
    assert journal.requests.ids() == ids[4:]


def _damage(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    position = int(data.draw(st.floats(0, 1, exclude_max=True), "position") * len(content))
    if data.draw(st.booleans(), "truncate"):
        del content[position:]
    else:
        content[position] ^= 1 << data.draw(st.integers(0, 7), "bit")
    path.write_bytes(content)


def _read_everything(root: Path) -> None:
    history = History.inspect(root)
    history.generations()
    history.requests.requests()
    for epoch in (0, 1):
        history.intent(epoch)
        history.manifest(epoch)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that holds every kind of record."""
    root = tmp_path_factory.mktemp("damage")
    journal = journal_at(root)
    run(journal, 0, 1)
    journal.requests.add(schedule_of(2, 2, workers=3))
    _read_everything(root)
    return root


@pytest.mark.parametrize(
    "name",
    [
        "format.json",
        "generations/1.json",
        "intents/0.json",
        "intents/1.json",
        "manifests/1.json",
        "control/1.json",
    ],
)
@given(data=st.data())
def test_damage_to_any_record_is_found_and_named(
    checkpoint: Path, name: str, data: st.DataObject
) -> None:
    path = checkpoint / "godwit" / name
    intact = path.read_bytes()
    _damage(path, data)
    before = files_below(checkpoint)
    try:
        with pytest.raises(DamagedFileError) as caught:
            _read_everything(checkpoint)
        assert caught.value.path == str(path)
        assert files_below(checkpoint) == before
    finally:
        path.write_bytes(intact)


def test_a_checkpoint_of_a_newer_version_is_refused_and_not_taken_over(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    path = tmp_path / "godwit" / "format.json"
    newer = path.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}')
    path.write_text(newer)
    before = files_below(tmp_path)
    with pytest.raises(DamagedFileError, match=r"format\.json: has format 2"):
        journal_at(tmp_path)
    with pytest.raises(DamagedFileError, match=r"format\.json: has format 2"):
        History.inspect(tmp_path)
    assert files_below(tmp_path) == before
    journal.check()


def test_a_damaged_format_file_is_of_no_epoch_to_roll_back_to(tmp_path: Path) -> None:
    journal_at(tmp_path)
    (tmp_path / "godwit" / "format.json").write_text("{}")
    with pytest.raises(DamagedFileError, match=r"restore the checkpoint from a backup$"):
        History.inspect(tmp_path)


def test_manifests_without_a_format_file_are_refused(tmp_path: Path) -> None:
    run(journal_at(tmp_path), 0)
    (tmp_path / "godwit" / "format.json").unlink()
    with pytest.raises(DamagedFileError, match=r"format\.json: is missing although"):
        journal_at(tmp_path)


def test_a_renamed_record_is_refused(tmp_path: Path) -> None:
    journal = journal_at(tmp_path)
    run(journal, 0)
    for directory in ("intents", "manifests"):
        shutil.copy(
            tmp_path / f"godwit/{directory}/0.json", tmp_path / f"godwit/{directory}/1.json"
        )
    with pytest.raises(DamagedFileError, match=r"manifests/1.json: holds epoch 0"):
        journal.last()
    for look in (journal.intent, journal.taken, journal.since):
        with pytest.raises(DamagedFileError, match=r"intents/1.json: holds epoch 0"):
            look(1)


def test_a_missing_referred_intent_is_named_by_its_referrer(tmp_path: Path) -> None:
    run(journal_at(tmp_path), 0, 1)
    (tmp_path / "godwit" / "intents" / "0.json").unlink()
    with pytest.raises(DamagedFileError, match=r"intents/1.json: refers to .*intents/0.json"):
        History.inspect(tmp_path).intent(1)


def test_each_tick_is_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(3):
        journal_at(tmp_path).tick()
    assert len(list((tmp_path / "godwit" / "ticks").iterdir())) == 3
