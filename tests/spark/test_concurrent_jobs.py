"""Jobs of an epoch: independent ones run at the same time, others behind those before them."""

from collections.abc import Callable, Mapping
from threading import Barrier, Event
from typing import Any, cast

import pytest

from godwit.model.graph import Graph, Parents
from godwit.model.ids import WorkerId
from godwit.model.receipt import Receipt
from godwit.spark import concurrent_jobs
from godwit.spark.concurrent_jobs import Receipts, run_jobs
from godwit.spark.operator_job import OperatorJob

PATIENCE = 60  # seconds, for a thread to get the processor

SOURCE = Parents((), (0,))
DIAMOND = Graph(
    {
        "left": (SOURCE,),
        "right": (SOURCE,),
        "both": (Parents(("left", "right"), ()),),
        "last": (Parents(("both",), ()),),
    }
)


class Job:
    """Does what the test says, and has one receipt of as many records as its name has letters."""

    def __init__(self, name: str, work: Callable[[], Any] = lambda: None) -> None:
        self._name, self._work = name, work

    def run(self) -> list[Receipt]:
        self._work()
        return [Receipt(WorkerId(0), records=len(self._name))]


def run(graph: Graph, works: Mapping[str, Callable[[], Any]]) -> tuple[list[str], dict[str, int]]:
    """The operators in the order in which they were planned, and the records of each."""
    planned = list[str]()

    def plan(name: str, receipts: Receipts) -> OperatorJob:
        assert receipts.keys() >= set(graph.before(name))
        planned.append(name)
        return cast(OperatorJob, Job(name, works.get(name, lambda: None)))

    receipts = run_jobs(cast(Any, None), graph, plan)
    return planned, {name: sum(one.records for one in group) for name, group in receipts.items()}


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads inherit nothing, since there is nothing of Spark."""
    monkeypatch.setattr(concurrent_jobs, "inheritable_thread_target", lambda spark: lambda run: run)


def test_independent_ones_run_at_the_same_time() -> None:
    """Each waits for the other one to be there."""
    meet = Barrier(2, timeout=PATIENCE).wait
    planned, records = run(DIAMOND, {"left": meet, "right": meet})
    assert planned == ["left", "right", "both", "last"]
    assert records == {"left": 4, "right": 5, "both": 4, "last": 4}


def test_an_operator_does_not_wait_for_those_that_it_does_not_take() -> None:
    """One that takes what a quick one puts out runs beside a slow one, which waits for it."""
    graph = Graph(
        {"slow": (SOURCE,), "quick": (SOURCE,), "behind": (Parents(("quick",), ()),)},
    )
    is_behind = Event()

    def wait() -> None:
        assert is_behind.wait(PATIENCE)

    planned, _ = run(graph, {"slow": wait, "behind": is_behind.set})
    assert planned == ["slow", "quick", "behind"]


def test_if_one_fails_others_come_to_their_end_and_none_begins() -> None:
    meet, ended = Barrier(2, timeout=PATIENCE), Event()

    def fail() -> None:
        meet.wait()
        raise RuntimeError("left")

    def end() -> None:
        meet.wait()
        ended.set()

    with pytest.raises(RuntimeError, match="left"):
        run(DIAMOND, {"left": fail, "right": end, "both": lambda: pytest.fail("it began")})
    assert ended.is_set()
