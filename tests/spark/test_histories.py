"""Random histories on real Spark come out as in plain Python, in state and in the file sink.

A history is inputs x migrations of the running query, at once or in steps, with bins that split
meanwhile or not, x restarts with other workers and bins, also in the middle of a migration, x
deaths: of the driver's part of an epoch, wherever it is, and by SIGKILL of the process of a task.
In some, notices are pending: of one or of two inputs, of sessions, of an operator behind another,
or rows of a join; one is of a graph with three sinks. The in-memory runtime plays many more, and
stranger ones, in `tests/driver/test_histories.py`. One history for each workload is always the
same, with each strategy, and deaths before and after every point. `make soak` plays random ones.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import godwit as gw
from godwit import faults
from godwit.api.stream import then
from godwit.inspect.audit import verify
from godwit.inspect.snapshot import Snapshot
from godwit.model.routing import Routing
from godwit.model.schema import to_ddl
from tests.support.column_workloads import APART, FADING_BALANCES
from tests.support.counting_workloads import (
    COLLECT,
    ENDS,
    TALLY,
    TOTALS,
    Row,
    Workload,
    in_order,
    tabulate,
)
from tests.support.feed import Feed
from tests.support.graph_workloads import DIAMOND, SOURCE
from tests.support.join_workloads import JOINED_FULL
from tests.support.merged_windows import PANES, VISITS
from tests.support.timed_workloads import ALARMS, IN_ORDER, PAIRS
from tests.support.window_workloads import CHAINED, SESSIONS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WORKLOADS = (
    *(TOTALS, ENDS, TALLY, COLLECT, ALARMS, IN_ORDER, PAIRS),
    *(SESSIONS, CHAINED, PANES, VISITS, APART, FADING_BALANCES, JOINED_FULL, DIAMOND),
)
STRATEGIES = ("paced", "all-at-once", "batched:3", "fluid", "matched")
SIDES: tuple[faults.Side, ...] = ("before", "after")
RANDOM = min(100, settings().max_examples // 3)
FEW_BINS = 8
IN_TASKS = ("delta", "outputs")


@dataclass(frozen=True, slots=True)
class Kill:
    """The epoch of the episode's first batch dies at this point."""

    point: str
    side: faults.Side


@dataclass(frozen=True, slots=True)
class Episode:
    """From one start of the query to the next."""

    workers: int | None
    bins: int | None
    # Asked for before the batches; repeated over all bins, and for each operator from another on.
    owners: tuple[int, ...] | None
    strategy: str
    splits: bool  # each bin in two, while they move
    kill: Kill | None
    batches: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True, slots=True)
class Story:
    workload: Workload
    episodes: tuple[Episode, ...]


@st.composite
def stories(draw: st.DrawFn, workloads: Sequence[Workload]) -> Story:
    workload = draw(st.sampled_from(workloads))
    rows = st.lists(st.sampled_from(workload.records), min_size=1, max_size=12).map(tuple)
    episodes = st.builds(
        Episode,
        workers=st.none() | st.integers(1, 3),
        bins=st.none() | st.sampled_from([4, 8, 1]),
        owners=st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple),
        strategy=st.sampled_from(STRATEGIES),
        splits=st.booleans(),
        kill=st.none() | st.builds(Kill, st.sampled_from(faults.POINTS), st.sampled_from(SIDES)),
        batches=st.lists(rows, min_size=1, max_size=2).map(tuple),
    )
    return Story(workload, tuple(draw(st.lists(episodes, min_size=1, max_size=2))))


def story_of(number: int) -> Story:
    """Two episodes of a workload, in each of which bins move and something dies."""
    workload, chance = WORKLOADS[number], random.Random(number)
    kills = [Kill(point, side) for point in faults.POINTS for side in SIDES]

    def episode(place: int, workers: int | None, bins: int | None) -> Episode:
        turn = number + place * len(WORKLOADS)
        return Episode(
            workers=workers,
            bins=bins,
            owners=tuple(chance.choices(range(4), k=5)),
            strategy=STRATEGIES[turn % len(STRATEGIES)],
            splits=turn % 3 == 0,
            kill=kills[turn % len(kills)],
            batches=tuple(tuple(chance.choices(workload.records, k=6)) for _ in range(place + 1)),
        )

    return Story(
        workload, (episode(0, 2, None), episode(1, (None, 3)[number % 2], (4, None)[number % 2]))
    )


class DeathError(Exception):
    """The end of a query, as far as its checkpoint can tell."""


@pytest.fixture
def armed(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A directory in which the processes of tasks look for their faults."""
    directory = tmp_path / "faults"
    directory.mkdir()
    environment = spark.sparkContext.environment
    environment["GODWIT_FAULTS"] = str(directory)
    yield directory
    del environment["GODWIT_FAULTS"]


class Play:
    """A query on Spark, and what it should come to."""

    def __init__(self, spark: SparkSession, home: Path, armed: Path, workload: Workload) -> None:
        self._workload = workload
        self._batches: list[Sequence[Row]] = []
        self._records: dict[int, int] = {}  # by epoch
        self._feed = Feed(home / "input", to_ddl(workload.schema))
        self._checkpoint, self._output = home / "checkpoint", home / "output"
        self._armed = armed
        self._died = False
        self._deaths = 0
        self._sinks, self._job = self._describe(spark)

    def _describe(self, spark: SparkSession) -> tuple[Sequence[str], gw.Job]:
        """The job, and the sinks of a graph."""
        stream = gw.stream(self._feed.stream(spark))
        operators = (*self._workload.before, self._workload.operator)
        edges = self._workload.edges
        if edges is None:
            for operator in operators:
                stream = then(stream, operator)
            return (), stream.to(gw.files(self._output))
        streams = {SOURCE: stream}
        for operator in operators:
            first, *others = (streams[name] for name in edges["takes"][operator.name])
            streams[operator.name] = then(first.union(*others), operator)
        sinks = edges["sinks"]
        return sinks, gw.query(*(streams[name].to(gw.files(self._output / name)) for name in sinks))

    def run(self, episode: Episode) -> None:
        first = None if self._checkpoint.exists() else FEW_BINS  # a step an epoch, so not 4,096
        query = self._start(episode.workers, episode.bins or first)
        self._died = False
        try:
            if episode.owners:
                operators = (*self._workload.before, self._workload.operator)
                for place, operator in enumerate(operators):
                    bins = query.routing(operator.name).bins
                    owners = np.resize(np.roll(np.array(episode.owners, np.int32), place), bins)
                    target = Routing(owners, max(episode.owners) + 1)
                    query.migrate(target, operator.name, strategy=episode.strategy, supersede=True)
                    if episode.splits:
                        query.split(2 * bins, operator.name)
            with self._death(episode.kill, (query.epoch if query.epoch is not None else -1) + 1):
                for batch in episode.batches:
                    self._batches.append(batch)
                    self._feed.add(batch)
                try:
                    query.process_all_available()
                    return
                except Exception:
                    if not self._died:
                        raise
            query = self._start()
            query.process_all_available()
        finally:
            query.stop()

    def _start(self, workers: int | None = None, bins: int | None = None) -> gw.Query:
        return self._job.start(
            self._checkpoint, workers=workers, options=gw.Options(bins=bins), listener=self._listen
        )

    def _listen(self, report: gw.EpochReport) -> None:
        self._records[report.epoch] = report.records

    def _death(self, kill: Kill | None, epoch: int):  # type: ignore[no-untyped-def]
        """Let the process of a task, or the driver's part of an epoch, die at a point."""
        if kill is not None and kill.point in IN_TASKS:
            (self._armed / f"{kill.point}-{kill.side}-{epoch}").write_text("SIGKILL")

        def reach(point: str, side: faults.Side, at: int) -> None:
            if kill is not None and (point, side, at) == (kill.point, kill.side, epoch):
                self._died = True
                self._deaths += 1
                raise DeathError

        return patch.object(faults, "handler", reach)

    @property
    def deaths(self) -> int:
        """Of the driver's part of an epoch, and of processes of tasks."""
        return self._deaths + len(list(self._armed.glob("*.taken")))

    def check(self) -> None:
        """Epochs without records are those that Spark ran for a migration or for event time."""
        batches, model = [*self._batches], self._workload.model()
        expected = {
            epoch: in_order(model.feed(batches.pop(0) if self._records[epoch] else ()))
            for epoch in sorted(self._records)
        }
        assert batches == []
        found: dict[int, list[Row]] = {epoch: [] for epoch in expected}
        for file in self._output.glob("**/epoch=*/*.parquet"):
            sink = {"sink": file.parts[-3]} if self._sinks else {}
            rows = pq.ParquetFile(file).read().to_pylist()
            found[int(file.parts[-2].removeprefix("epoch="))] += [sink | row for row in rows]
        assert {epoch: in_order(rows) for epoch, rows in found.items()} == expected
        for place, state in model.state().items():
            name, _, table = place.rpartition(":")
            name = name or self._workload.operator.name
            snapshot = Snapshot.open(self._checkpoint, name, table=table)
            rows = [row for part in snapshot.read() for row in part.to_pylist()]
            assert tabulate(rows) == in_order(state)
        assert verify(self._checkpoint).findings == []


def play(spark: SparkSession, home: Path, armed: Path, story: Story) -> int:
    """Let a history happen and check what came of it; returns how much died."""
    for fault in armed.iterdir():
        fault.unlink()
    play = Play(spark, home, armed, story.workload)
    for episode in story.episodes:
        play.run(episode)
    play.check()
    return play.deaths


@pytest.mark.parametrize(
    "number", range(len(WORKLOADS)), ids=lambda number: repr(WORKLOADS[number])
)
def test_a_history(spark: SparkSession, armed: Path, tmp_path: Path, number: int) -> None:
    assert play(spark, tmp_path, armed, story_of(number)) > 0


@pytest.mark.soak
@pytest.mark.skipif(settings().derandomize, reason="`make soak` plays random histories")
@pytest.mark.parametrize(
    ("workloads", "histories"), [(WORKLOADS, RANDOM), ((CHAINED,), RANDOM // 4)]
)
def test_histories(
    spark: SparkSession,
    armed: Path,
    tmp_path_factory: pytest.TempPathFactory,
    workloads: Sequence[Workload],
    histories: int,
) -> None:
    @settings(
        max_examples=histories,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(stories(workloads))
    def comes_out_right(story: Story) -> None:
        event(f"{play(spark, tmp_path_factory.mktemp('history'), armed, story)} deaths")

    comes_out_right()
