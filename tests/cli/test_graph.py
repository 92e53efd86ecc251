"""`godwit status --graph` and `query.explain()` print a graph so that one can read it."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import godwit as gw
from godwit.cli import main
from godwit.testing import Simulation

ROWS = "shop string, at timestamp"
TIMED: dict[str, Any] = {"time": "at", "delay": "10 s"}


def job(home: Path) -> gw.Job:
    """A union, a join, windows, late records, sources with and without an end to waiting."""
    orders, returns = (gw.stream(ROWS, name=name) for name in ("orders", "returns"))
    clicks = gw.stream(ROWS, name="clicks", idle_after="1 minute")
    changes = orders.union(returns).aggregate(
        "changes",
        key="shop",
        window=gw.sliding("1 hour", "90 s"),
        n=gw.count(),
        late=gw.files(home / "late"),
        **TIMED,
    )
    bought = clicks.join("bought", orders, on="shop", how="left", within=("0 s", "1 m"), **TIMED)
    sizes = changes.aggregate("sizes", key="n", shops=gw.count())
    again = sizes.deduplicate("again", key=["n", "shops"])
    return gw.query(
        changes.to(gw.files(home / "changes")),
        bought.to(gw.files(home / "bought")),
        sizes.union(again).deduplicate("once", key="n").to(gw.files(home / "once")),
    )


def test_the_graph_of_a_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulation = Simulation(job(tmp_path), tmp_path / "checkpoint", workers=3)
    for second in (0, 1):
        row = {"shop": "a", "at": datetime(2026, 1, 1, 12) + timedelta(seconds=second)}
        simulation.feed(orders=[row], returns=[row], clicks=[row])
    assert main(["status", str(tmp_path / "checkpoint"), "--graph"]) == 0
    assert (
        capsys.readouterr().out
        == f"""\
changes: aggregate by shop in windows of 1 hour every 90 seconds
  from  source orders and source returns
  to    sizes, files in {tmp_path}/changes
  late  files in {tmp_path}/late
  3 workers, 64 bins, watermark 2026-01-01 11:59:50
bought: join by shop
  left  source clicks (idle after 1 minute)
  right source orders
  to    files in {tmp_path}/bought
  3 workers, 64 bins, watermark 2026-01-01 11:59:50
sizes: aggregate by n
  from  changes
  to    again, once
  3 workers, 64 bins, no event time
again: deduplicate by n, shops
  from  sizes
  to    once
  3 workers, 64 bins, no event time
once: deduplicate by n
  from  sizes and again
  to    files in {tmp_path}/once
  3 workers, 64 bins, no event time
"""
    )


@pytest.mark.parametrize(
    ("window", "told"),
    [
        (gw.tumbling("1 day"), "aggregate by shop in windows of 1 day"),
        (gw.sliding("1 s", "500 ms"), "aggregate by shop in windows of 1 second every 500 ms"),
        (gw.session("1500 ms"), "aggregate by shop in sessions with gaps of 1,500 ms"),
        (gw.session(until="closes"), "aggregate by shop in sessions until closes"),
    ],
    ids=str,
)
def test_windows_are_told_as_one_writes_them(
    window: Any, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = gw.stream(f"{ROWS}, closes timestamp")
    counts = rows.aggregate("counts", key="shop", window=window, n=gw.count(), **TIMED)
    Simulation(counts.to(gw.files(tmp_path / "out")), tmp_path / "checkpoint").feed()
    assert main(["status", str(tmp_path / "checkpoint"), "--graph"]) == 0
    assert capsys.readouterr().out.startswith(f"counts: {told}\n")
