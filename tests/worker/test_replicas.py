"""What an executor needs, by brute force; and what it says of it."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from godwit.log.intent import Intent
from godwit.log.layout import REPLICAS
from godwit.model.files import EVERYWHERE, FileRef
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.manifest import Manifest
from godwit.model.routing import SEGMENTS, Routing
from godwit.model.tree import PackedTree
from godwit.placement.placement_state import PlacementRecord
from godwit.placement.slots import Placement
from godwit.state.run import SLICES
from godwit.storage.local import LocalStore
from godwit.worker.replicas import (
    KeeperProgress,
    Needs,
    clear_progress,
    read_progress,
    read_reports,
    write_progress,
)
from tests.support.placed import held

EXECUTORS = [*map(ExecutorId, "012")]


@st.composite
def trees(draw: st.DrawFn, name: str) -> PackedTree:
    """A tree with a few files, of which segments name some."""
    count = draw(st.integers(0, 6))
    files = [FileRef(f"{name}/{n}", 1, draw(st.integers(1, 100)), n) for n in range(count)]
    segments: list[list[list[int]]] = [[] for _ in range(SEGMENTS)]
    slices = st.just(EVERYWHERE) | st.integers(-(1 << 63), (1 << 63) - 1)
    for number in range(count):
        for segment in draw(st.sets(st.integers(0, SEGMENTS - 1), max_size=5)):
            run = [number, 1, draw(slices)]
            *_, newest = segments[segment] or [[]]
            if newest and run[2] % 2:
                newest += run
            else:
                segments[segment].append(run)
    return PackedTree(tuple(files), segments)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Intent, Manifest]:
    workers = draw(st.integers(1, 4))
    names = draw(st.sampled_from([["a"], ["a", "b"]]))
    routings, found = {}, {}
    for name in names:
        bins = 1 << draw(st.integers(1, 8))
        owners = draw(st.lists(st.integers(0, workers - 1), min_size=bins, max_size=bins))
        routings[name] = Routing(np.array(owners, np.int32), workers)
        found[name] = {table: draw(trees(f"{name}/{table}")) for table in ("x", "y")}
    homes = draw(st.lists(st.sampled_from(EXECUTORS), min_size=workers, max_size=workers))
    replicas = draw(
        st.lists(
            st.lists(st.sampled_from(EXECUTORS), unique=True),
            min_size=workers,
            max_size=workers,
        )
    )
    placement = PlacementRecord(Placement.of(1, EXECUTORS, homes, replicas))
    intent = Intent(Epoch(1), 1, "query", "", routings, {}, placement=placement)
    return intent, Manifest(Epoch(0), 1, "query", "", {}, found, {}, {})


def brute_force(worker: int, intent: Intent, manifest: Manifest) -> set[str]:
    """The files of a worker, bin by bin, from the hashes that each has."""
    names = set()
    for operator, routing in intent.routings.items():
        width = (1 << 64) // routing.bins
        for bin, owner in enumerate(routing.owners.tolist()):
            if owner != worker:
                continue
            first, last = bin * width, (bin + 1) * width - 1
            for part in range(first >> 52, (last >> 52) + 1):
                for tree in manifest.trees[operator].values():
                    names |= {
                        tree.files[number].name
                        for layer in tree.segments[part // SLICES]
                        for number, slices in zip(layer[::3], layer[2::3], strict=True)
                        if slices >> part % SLICES & 1
                    }
    return names


@given(situations(), st.sampled_from(EXECUTORS))
def test_an_executor_needs_the_files_of_the_slices_of_its_workers(
    situation: tuple[Intent, Manifest], executor: ExecutorId
) -> None:
    intent, manifest = situation
    assert intent.placement is not None
    placement = intent.placement.placement
    needs = Needs.of(executor, intent, manifest)
    own = [w for w, place in enumerate(placement.homes) if place == executor]
    assert needs.own.keys() == set().union(*(brute_force(w, intent, manifest) for w in own))
    assert {w: set(share.files) for w, share in needs.replicas.items()} == {
        w: brute_force(w, intent, manifest)
        for w, places in enumerate(placement.replicas)
        if executor in places
    }


@given(situations(), st.sampled_from(EXECUTORS), st.integers(0, 1000))
def test_replicas_get_the_room_that_own_workers_leave(
    situation: tuple[Intent, Manifest], executor: ExecutorId, room: int
) -> None:
    """A replica is left out only if it does not fit beside those before it."""
    needs = Needs.of(executor, *situation)
    chosen = needs.affordable(room)

    def size(*groups: Any) -> int:
        return sum(ref.bytes for ref in {ref.name: ref for g in groups for ref in g}.values())

    kept: list[FileRef] = list(needs.own.values())
    for share in needs.replicas.values():
        files = list(share.files.values())
        if share.files.keys() <= chosen.keys() and files:
            kept += files
        elif files:
            assert size(kept, files) > room
    assert set(chosen) <= {ref.name for ref in kept}
    if chosen:
        assert size(kept) <= room


def test_without_a_placement_nothing_is_needed() -> None:
    intent = Intent(Epoch(1), 1, "query", "", {"a": Routing.even(16, 2)}, {})
    manifest = Manifest(Epoch(0), 1, "query", "", {}, {"a": {}}, {}, {})
    assert Needs.of(ExecutorId("0"), intent, manifest) == Needs({}, {})


# -- what is said of it


def told(executor: str, **workers: int | None) -> KeeperProgress:
    has = {WorkerId(int(name[1:])): held(epoch) for name, epoch in workers.items()}
    return KeeperProgress(
        ExecutorId(executor), 4711, Epoch(7), has, 1 << 40, 0.25, ("state/broken",)
    )


def test_what_was_said_is_read(tmp_path: Path) -> None:
    files = LocalStore(tmp_path, durable=False)
    write_progress(files, 3, told("0", w1=6))
    write_progress(files, 3, told("0", w1=7, w2=None))
    write_progress(files, 3, told("rack/2", w0=5))
    write_progress(files, 2, told("1", w0=5))
    assert read_reports(LocalStore(tmp_path), 3)[ExecutorId("0")] == told("0", w1=7, w2=None)
    assert read_progress(LocalStore(tmp_path), 3) == {
        "0": {1: held(7, 0), 2: held(None, 0)},
        "rack/2": {0: held(5, 0)},
    }


def test_what_is_missing_or_damaged_is_not_known(tmp_path: Path) -> None:
    assert read_progress(LocalStore(tmp_path), 1) == {}
    files = LocalStore(tmp_path, durable=False)
    for executor in "012345":
        write_progress(files, 1, told(executor, w0=7))
    paths = sorted((tmp_path / REPLICAS).iterdir())
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[: len(content) // 2])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(content.replace(b'"lacking":0', b'"lacking":1'))
    paths[3].write_bytes(content[:-1] + b" \n")
    paths[4].unlink()
    paths[4].mkdir()
    assert set(read_progress(LocalStore(tmp_path), 1)) == {"5"}


def test_what_was_said_is_taken_back(tmp_path: Path) -> None:
    files = LocalStore(tmp_path, durable=False)
    for generation in (1, 2, 10):
        for executor in "01":
            write_progress(files, generation, told(executor, w0=7))
    clear_progress(files, 10)
    assert sorted(files.names(REPLICAS)) == ["10-0.json", "10-1.json"]
    clear_progress(files, 10, ExecutorId("1"))
    clear_progress(files, 10, ExecutorId("1"))
    assert set(read_progress(LocalStore(tmp_path), 10)) == {"0"}
