"""What must hold when a story has come to its end."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from godwit.inspect.audit import verify
from godwit.migration.migration import OPEN
from godwit.migration.strategies import AllAtOnce
from godwit.model.files import EVERYWHERE
from godwit.model.manifest import Manifest, output_files, state_files
from godwit.model.routing import SEGMENTS
from godwit.state import file as state_file
from tests.support.counting_workloads import Beginning, Finite, Row, in_order, tabulate
from tests.support.history_events import Restart
from tests.support.history_query import ModelledQuery
from tests.support.routes import Trip

LONG = 12  # epochs: a migration that takes longer than this is brought to its end otherwise


def check_end(query: ModelledQuery) -> None:
    """Start the query once more, so that it tidies up behind the dead, and check everything."""
    query.disarm()
    _come_to_an_end(query)
    query.restart(Restart())
    _check_ends(query)
    last = len(query.batches) - 1
    assert query.sim.committed == last
    expected = list(_expected(query))
    delivered = {epoch: in_order(rows) for epoch, rows in query.sim.delivered.items()}
    assert delivered == {epoch: rows for epoch, (rows, _) in enumerate(expected)}
    if last >= 0:
        retained = query.history.epochs()
        assert retained == list(range(max(0, last + 1 - query.story.retention), last + 1))
        query.seen["epochs pruned"] += retained[0]
        for epoch in retained:
            _check_epoch(query, epoch, expected[epoch][1])
        assert verify(query.checkpoint).findings == []
        _check_files(query, retained)


def _come_to_an_end(query: ModelledQuery) -> None:
    """Every migration that was accepted ends: by itself, or, if that would take too long, when
    another one goes its way at once."""
    for _ in range(LONG):
        if _are_moving(query):
            query.feed(())
    for name in _are_moving(query):
        goal, now = query.routes[name].goal, query.now
        options: dict[str, Any] = {"strategy": AllAtOnce(), "supersede": True}
        trip = Trip(query.routes[name].now, goal, **options, asked=now)
        query.ask({name: trip}, partial(query.sim.migrate, goal, **options, operator=name))
        query.seen["migrations that take long"] += 1
    if _are_moving(query):
        query.feed(())
    assert _are_moving(query) == []


def _check_ends(query: ModelledQuery) -> None:
    driver = query.sim.driver
    for name in query.names:
        assert driver.timelines[name].migration is None
    for id, names in query.accepted.values():
        ends = driver.timelines.ended(id)
        for name in names:
            assert name in ends, f"migration {id} of {name} has no end"
            assert ends[name].phase not in OPEN
            query.seen[f"migrations {ends[name].phase}"] += 1


def _are_moving(query: ModelledQuery) -> list[str]:
    """The operators that the model has a migration of."""
    return [name for name in query.names if query.routes[name].is_moving]


def _expected(query: ModelledQuery) -> Iterator[tuple[list[Row], dict[str, list[Row]]]]:
    """Outputs and state of each epoch."""
    for epoch, rows in enumerate(query.batches):
        if query.timed and epoch == query.routes[query.timed[-1]].end:
            assert isinstance(query.model, Finite)
            query.model.finish()
            query.seen["ends of a stream"] += 1
        if isinstance(query.model, Beginning):
            query.model.begin(*query.begins[epoch], query.publishers[epoch])
        outputs = in_order(query.model.feed(rows))
        yield outputs, {name: in_order(table) for name, table in query.model.state().items()}


def _check_epoch(query: ModelledQuery, epoch: int, tables: dict[str, list[Row]]) -> None:
    intent = query.history.intent(epoch)
    assert intent is not None
    assert dict(intent.routings) == {name: one.of(epoch) for name, one in query.routes.items()}
    for place, expected in tables.items():
        operator, _, table = place.rpartition(":")
        rows = query.sim.state(table, epoch, operator=operator or None)
        assert tabulate(rows) == expected
    _check_workers(query, epoch)


def _check_workers(query: ModelledQuery, epoch: int) -> None:
    """Each row that is new in an epoch was written by the worker that has the bin of its key:
    the top bits of its hash."""
    manifest = query.history.manifest(epoch)
    assert manifest is not None
    for name, routes in query.routes.items():
        owners = routes.of(epoch).owners
        for spec in query.sim.driver.operators[name].tables:
            of_epoch = re.compile(rf"state/{name}/{spec.name}/e{epoch}-w(\d+)-delta-")
            for ref in manifest.trees[name][spec.name].files:
                if written := of_epoch.match(ref.name):
                    file = state_file.read(query.history.files, ref.name, spec, ref)
                    keys = file.whole().rows.select(spec.key.names)
                    bins = [int(h) * len(owners) >> 64 for h in query.hashes(keys)]
                    assert {int(owners[bin]) for bin in bins} == {int(written[1])}
                    query.seen["files of a worker"] += 1


def _check_files(query: ModelledQuery, retained: Sequence[int]) -> None:
    """Below `state` and `outputs` is what retained manifests name, and nothing else."""
    named, parts = set[str](), set[str]()
    for epoch in retained:
        manifest = query.history.manifest(epoch)
        assert manifest is not None
        parts |= merged_parts(manifest)
        named.update(ref.name for ref in (*state_files(manifest), *output_files(manifest)))
    root = query.checkpoint / "godwit"
    paths = [*(root / "state").rglob("*"), *(root / "outputs").rglob("*")]
    assert {str(path.relative_to(root)) for path in paths if path.is_file()} == named
    query.seen["merged parts of segments"] += len(parts)
    query.seen["merged files"] += sum("-merge-" in name for name in named)
    query.seen["cut files"] += sum(name.endswith("-1.arrow") for name in named)


def merged_parts(manifest: Manifest) -> set[str]:
    """The merged files of which some run has not all slices of its segment."""
    found = (one.unpack() for tables in manifest.trees.values() for one in tables.values())
    return {
        run.file
        for one in found
        for segment in range(SEGMENTS)
        for run in one.runs(segment)
        if run.slices != EVERYWHERE and "-merge-" in run.file
    }
