"""The numbers of an epoch, for a log line, a listener and Prometheus."""

from dataclasses import replace
from pathlib import Path

from godwit.inspect.prometheus import PrometheusFile
from godwit.inspect.report import EpochReport, ReplicaReport, came_in
from godwit.migration.strategies import all_at_once, batched
from godwit.model.graph import Graph, Parents
from godwit.model.ids import Epoch, ExecutorId, WorkerId
from godwit.model.routing import Routing
from godwit.model.unread import UnreadFiles
from godwit.placement.slots import Held, Placement
from tests.support.simulated import simulate, words


def report(tmp_path: Path) -> EpochReport:
    """The epoch with the first of two steps from 2 to 4 workers, over 3 records of 2 keys."""
    sim = simulate(tmp_path, workers=2, bins=16)
    sim.feed(words("a"))
    before = sim.driver.routing("counts")
    sim.migrate(Routing.even(16, 2).spread(4), strategy=batched(5))
    sim.feed(words("a", "b", "a"))
    manifest = sim.driver.published.manifest
    assert manifest is not None
    timelines = {"counts": sim.driver.timelines["counts"]}
    parts = {"decide": 0.01, "compute": 0.2}
    return EpochReport.of(manifest, {"counts": before}, timelines, {"counts": 5_000_000}, parts)


def test_what_moved_is_told_in_the_bins_of_now(tmp_path: Path) -> None:
    """Also if they were split between two epochs, or between an epoch and its report."""
    sim = simulate(tmp_path, workers=2, bins=16)
    sim.feed(words("a"))
    before = sim.driver.routing("counts")
    sim.split(32)
    sim.migrate(Routing.even(32, 2).assign({0: 1, 1: 1, 31: 0}), strategy=all_at_once())
    sim.feed(words("a", "b"))
    manifest = sim.driver.published.manifest
    assert manifest is not None
    for bins, moved in ((32, 3), (64, 6)):
        sim.split(bins)
        timelines = {"counts": sim.driver.timelines["counts"]}
        told = EpochReport.of(manifest, {"counts": before}, timelines, {}, {}).operators["counts"]
        assert told.moved == moved


def test_records_are_those_of_all_sources_each_once(tmp_path: Path) -> None:
    """The first operator may take one of several sources, two may share one, and one may take what
    another puts out beside a source."""
    orders, clicks, payments = (Parents((), (source,)) for source in range(3))
    inputs = {
        "visits": (clicks,),
        "once": (payments,),
        "paid": (orders, Parents(("once",))),
        "both": (clicks, orders),
        "sums": (Parents(("visits",)),),
    }
    one = report(tmp_path).operators["counts"]
    got = {"visits": 100, "once": 20, "paid": 7 + 15, "both": 100 + 7, "sums": 9}
    operators = {name: replace(one, name=name, records=n, outputs=15) for name, n in got.items()}
    assert came_in(Graph(inputs), operators) == 100 + 20 + 7
    del inputs["both"], operators["both"]
    assert came_in(Graph(inputs), operators) == 100 + 20 + 7


def test_a_line_for_people(tmp_path: Path) -> None:
    assert str(report(tmp_path)) == (
        "epoch 1: 3 records in 0.21 s (decide 0.01, compute 0.20); "
        "counts: 4 workers, 2 rows changed, watermark 1970-01-01 00:00:05, 5 bins moved, "
        "migration 1 has 3 bins to go"
    )


def test_one_is_not_many(tmp_path: Path) -> None:
    one = report(tmp_path)
    counts = replace(one.operators["counts"], workers=1, rows=1, moved=1, left=1, records=1)
    assert str(replace(one, operators={"counts": counts}, records=1)) == (
        "epoch 1: 1 record in 0.21 s (decide 0.01, compute 0.20); "
        "counts: 1 worker, 1 row changed, watermark 1970-01-01 00:00:05, 1 bin moved, "
        "migration 1 has 1 bin to go"
    )


def test_files_that_wait(tmp_path: Path) -> None:
    waiting = replace(report(tmp_path / "checkpoint"), unread=UnreadFiles(12, 34.5))
    assert ", 12 files waiting, the oldest for 34 s; counts: " in str(waiting)
    assert "waiting" not in str(replace(waiting, unread=UnreadFiles(0)))
    PrometheusFile(tmp_path / "godwit.prom")(waiting)
    lines = (tmp_path / "godwit.prom").read_text().splitlines()
    assert {"godwit_unread_files 12", "godwit_unread_oldest_seconds 34.5"} <= set(lines)


def test_a_file_for_prometheus(tmp_path: Path) -> None:
    collect = PrometheusFile(tmp_path / "godwit.prom")
    one = report(tmp_path / "checkpoint")
    collect(one)
    collect(one)
    lines = (tmp_path / "godwit.prom").read_text().splitlines()
    assert {
        "godwit_epoch 1",
        "godwit_epochs_total 2",
        'godwit_epoch_seconds{part="compute"} 0.2',
        'godwit_workers{operator="counts"} 4',
        'godwit_left{operator="counts"} 3',
        'godwit_records_total{operator="counts"} 6',
        'godwit_watermark_seconds{operator="counts"} 5.0',
        "# TYPE godwit_records_total counter",
    } <= set(lines)
    for worker in range(4):
        labels = f'{{operator="counts",worker="{worker}"'
        assert any(line.startswith(f'godwit_worker_seconds{labels},part="') for line in lines)
        assert any(line.startswith(f"godwit_worker_fetched{labels}}} ") for line in lines)
    records = [line for line in lines if line.startswith("godwit_worker_records{")]
    assert sum(int(line.rpartition(" ")[2]) for line in records) == 3
    assert [path.name for path in tmp_path.glob("*.prom")] == ["godwit.prom"]


def test_replicas_in_numbers(tmp_path: Path) -> None:
    """Worker 0 has two copies, one of them two epochs behind; of that of worker 1 nothing is known,
    and what is known of others does not matter."""
    (a, b, c), (zero, one) = map(ExecutorId, "abc"), map(WorkerId, range(2))
    placement = Placement.of(1, [a, b, c], [a, b], [[b, c], [c]])
    held = {b: {zero: Held(Epoch(7))}, c: {zero: Held(Epoch(5), 300)}, a: {one: Held(Epoch(7))}}
    replicas = ReplicaReport.all(Epoch(7), placement, held)
    assert replicas == [
        ReplicaReport(zero, b, 0, 0),
        ReplicaReport(zero, c, 2, 300),
        ReplicaReport(one, c, 8, None),
    ]
    told = replace(report(tmp_path / "checkpoint"), executors={0: "a", 1: "b"}, replicas=replicas)
    PrometheusFile(tmp_path / "godwit.prom")(told)
    lines = (tmp_path / "godwit.prom").read_text().splitlines()
    assert [line for line in lines if "executor=" in line] == [
        'godwit_worker_executor{worker="0",executor="a"} 1',
        'godwit_worker_executor{worker="1",executor="b"} 1',
        'godwit_replica_lag{worker="0",executor="b"} 0',
        'godwit_replica_lag{worker="0",executor="c"} 2',
        'godwit_replica_lag{worker="1",executor="c"} 8',
        'godwit_replica_lacking_bytes{worker="0",executor="b"} 0',
        'godwit_replica_lacking_bytes{worker="0",executor="c"} 300',
    ]


def test_prometheus_tells_queries_apart(tmp_path: Path) -> None:
    PrometheusFile(tmp_path / "godwit.prom", query="orders")(report(tmp_path / "checkpoint"))
    lines = (tmp_path / "godwit.prom").read_text().splitlines()
    assert {
        'godwit_epoch{query="orders"} 1',
        'godwit_left{query="orders",operator="counts"} 3',
    } <= set(lines)
