"""Lists, structs and sketches as the state of queries: windows, keys that expire, restarts."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import godwit as gw
from godwit.errors import IncompatibleError
from godwit.testing import Simulation

SCHEMA = "user string, at timestamp, ms long, url string"


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def view(second: int, ms: int | None, url: str | None = "/") -> dict[str, Any]:
    return {"user": "ann", "at": at(second), "ms": ms, "url": url}


def functions() -> dict[str, gw.Aggregate]:
    return {
        "slow": gw.top(2, by="ms", of=["url", "ms"]),
        "urls": gw.collect_list("url"),
        "different": gw.approx_count_distinct("url"),
        "usual": gw.approx_quantiles("ms", [0.5]),
        "spread": gw.variance("ms"),
        "over": gw.stddev("ms", sample=False),
    }


def simulation(checkpoint: Path | None = None, **options: Any) -> Simulation:
    """A job with all of `functions`, or with others."""
    options = {"time": "at", "delay": "0 s"} | functions() | options
    job = gw.stream(SCHEMA).aggregate("views", key="user", **options).to(gw.console())
    return Simulation(job, checkpoint=checkpoint)


def results(row: Mapping[str, Any]) -> list[Any]:
    return [row[name] for name in functions()]


EXPECTED = [
    [{"url": "/b", "ms": 9}, {"url": "/a", "ms": 5}],
    ["/a", "/c", "/b"],
    3,
    [5.0],
    pytest.approx(37 / 3),
    pytest.approx((74 / 9) ** 0.5),
]


def test_windows_close_with_them_whatever_moves_meanwhile() -> None:
    one = simulation(window=gw.tumbling("1 minute"))
    one.feed([view(10, 5, "/a"), view(30, 9, "/b"), view(70, 100, "/later")])
    assert one.outputs() == []
    one.migrate(3)
    one.feed([])
    one.restart()
    one.finish()
    first, second = one.outputs()
    assert (first["urls"], first["different"], first["usual"]) == (["/a", "/b"], 2, [5.0])
    assert first["slow"] == [{"url": "/b", "ms": 9}, {"url": "/a", "ms": 5}]
    assert second["slow"] == [{"url": "/later", "ms": 100}]
    assert second["spread"] is None


def test_state_goes_on_over_moves_and_restarts_and_earlier_times_come_first(
    tmp_path: Path,
) -> None:
    one = simulation(tmp_path, delay="1 minute")
    one.feed([view(10, 5, "/a"), view(30, 9, "/b")])
    one.migrate(5)
    one.feed([view(31, None, None)])
    one.restart(workers=1)
    one.feed([view(20, 2, "/c")])
    assert results(one.outputs()[-1]) == EXPECTED


def test_a_key_that_expires_begins_again() -> None:
    one = simulation(ttl="10 s")
    one.feed([view(0, 5, "/a")])
    one.feed([{**view(100, 1), "user": "bob"}])
    one.feed([])
    one.feed([view(101, 7, "/z")])
    assert results(one.outputs()[-1])[:3] == [[{"url": "/z", "ms": 7}], ["/z"], 1]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("slow", gw.top(3, by="ms", of=["url", "ms"])),
        ("slow", gw.top(2, by="ms", of=["url", "ms"], smallest=True)),
        ("different", gw.approx_count_distinct("url", rsd=0.01)),
        ("usual", gw.approx_quantiles("ms", [0.5], error=0.1)),
        ("spread", gw.variance("ms", sample=False)),
    ],
    ids=str,
)
def test_a_restart_with_other_arguments_is_refused(
    tmp_path: Path, name: str, other: gw.Aggregate
) -> None:
    simulation(tmp_path).feed([view(0, 5)])
    simulation(tmp_path)
    with pytest.raises(IncompatibleError, match=name):
        simulation(tmp_path, **{name: other})
