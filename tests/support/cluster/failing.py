"""A query on three executors that are killed: `python -m tests.support.cluster.failing HOME JAVA`.

It counts by key, three workers with a replica each. What happened is left in HOME/events.json: by
name, the epoch before it, the placement of that, the epoch that all replicas had, the epoch in
which the query had got over it, and what there is to say of it; HOME/seed decides what is random,
and HOME/replication how replicas come.
In the end it kills itself, while a handover is open; started again, it goes on for some epochs.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import godwit as gw
from godwit.api.handles import Handover
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.options import Replication
from godwit.placement.slots import Placement
from godwit.worker.replicas import read_reports
from lab.tools.executors import processes
from tests.support.cluster.application import CONF, assert_open, start

EVENTS = "events.json"
SEED = "seed"
REPLICATION = "replication"
WORKERS = 3
BINS = 256
MIXED = gw.Routing(
    np.arange(BINS, dtype=np.int32) % WORKERS, WORKERS
)  # all workers share every segment
MORE: dict[str, Any] = {
    "spark.python.daemon.module": "godwit.spark.daemon",
    # A hung executor is found out within seconds.
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "6s",
    "spark.network.timeoutInterval": "1s",
    "spark.deploy.maxExecutorRetries": "-1",
}


@dataclass
class Story:
    """What is done to a query, one after the other."""

    spark: SparkSession
    query: gw.Query
    history: History
    events: list[dict[str, Any]] = field(default_factory=list)
    held: int = 0  # the epoch that all replicas had when it was settled the last time
    calm: Placement | None = None  # since it was settled, nothing has happened

    def tell(self, name: str, happen: Callable[[Placement], Mapping[str, Any] | None]) -> None:
        """Let something happen to a settled query, and wait until it has got over it."""
        before = self.calm or self.settled()
        event = {
            "name": name,
            "before": self.query.epoch,
            "placement": before.to_json(),
            "held": self.held,
        }
        event |= happen(before) or {}
        self.calm = self.settled()
        self.events.append(event | {"after": self.query.epoch})

    def settled(self) -> Placement:
        """Wait until there are three executors that live, no handover is open, and every worker has
        one replica, which is up to date; those that it had before are forgotten."""
        epoch = self.query.epoch or 0
        while True:
            epoch = max(epoch + 1, self.query.epoch or 0)
            self.reach(epoch)
            placement = self.query.placement
            held = self.query.replicas()
            living = processes(self.spark.sparkContext).keys()
            if placement is None or self.query.handovers:
                continue
            if len(placement.executors) == WORKERS and living >= {*placement.executors}:
                newest = {
                    (worker, executor): replica.epoch or 0
                    for executor in placement.executors
                    for worker, replica in held.get(executor, {}).items()
                }
                wanted = {(worker, one) for worker, (one, *_) in enumerate(placement.replicas)}
                if newest.keys() == wanted and min(newest.values()) >= epoch - 2:
                    self.held = min(newest.values())
                    return placement

    def kill(self, *executors: str) -> None:
        """SIGKILL, all at once."""
        known = processes(self.spark.sparkContext)
        for executor in executors:
            os.kill(known[executor], signal.SIGKILL)

    def epochs(self, count: int) -> None:
        self.reach((self.query.epoch or 0) + count)

    def reach(self, epoch: int) -> None:
        if not self.query.await_epoch(epoch, 120):
            self.query.await_termination(1)  # raises what failed it
            raise AssertionError("the query does not go on")

    def await_running(self, is_so: Callable[[Intent], bool]) -> None:
        """Wait until the epoch that runs was decided to be so."""
        while not (
            (intent := self.history.intent((self.query.epoch or 0) + 1)) is not None
            and is_so(intent)
        ):
            time.sleep(0.01)


def main(home: Path, java: str) -> None:
    options = {f"spark.{side}.extraJavaOptions": java for side in ("driver", "executor")}
    builder = SparkSession.builder.master(f"local-cluster[{WORKERS},1,1024]")
    spark = builder.config(map=CONF | MORE | options).getOrCreate()
    way: Replication = "chain" if (home / REPLICATION).read_text() == "chain" else "pull"
    query = start(spark, home, workers=WORKERS, replicas=1, bins=BINS, replication=way)
    story = Story(spark, query, History(home / "checkpoint"))
    if not (home / EVENTS).exists():
        live(story, int((home / SEED).read_text()))
        (home / EVENTS).write_text(json.dumps(story.events))
        query.handover(2, other(story.settled()))
        story.await_running(lambda intent: bool({"building", "switched"} & stages(intent)))
        os.kill(os.getpid(), signal.SIGKILL)
    story.settled()
    query.stop()


def stages(intent: Intent) -> set[str]:
    """Those of the handovers that somebody asked for, as an epoch knows of them."""
    handovers = intent.placement.handovers if intent.placement else ()
    return {str(one.stage) for one in handovers if not one.automatic}


def live(story: Story, seed: int) -> None:
    assert story.query.migrate(MIXED, strategy="all-at-once").wait(120) == "done"
    story.tell("nothing", lambda _: story.epochs(4))
    story.tell("a slow keeper", lambda placement: slow(story, placement))
    story.tell("handover", lambda placement: hand_over(story, placement))
    story.tell("bins to a replica", lambda placement: move(story, placement))
    story.tell("a worker's executor", lambda placement: story.kill(placement.homes[0]))
    story.tell("twice in a row", lambda placement: twice(story, placement))
    story.tell("all executors", lambda placement: story.kill(*placement.executors))
    story.tell("all copies of a worker", lambda p: story.kill(p.homes[0], p.replicas[0][0]))
    story.tell("at random", lambda _: at_random(story, random.Random(seed)))
    story.tell("during a migration", lambda placement: migrating(story, placement))
    for stage in ("building", "switched"):
        story.tell(f"origin, {stage}", partial(during_handover, story, stage, lambda p: p.homes[2]))
        story.tell(f"target, {stage}", partial(during_handover, story, stage, other))
    story.tell("hung", lambda placement: hang(story, placement.homes[0]))
    story.tell("drained", lambda placement: drain(story, placement.homes[1]))


def other(placement: Placement) -> str:
    """An executor that has neither worker 2 nor its replica."""
    return next(
        one
        for one in placement.executors
        if one != placement.homes[2] and one not in placement.replicas[2]
    )


def slow(story: Story, placement: Placement) -> dict[str, Any]:
    """Stop the process that keeps the replica of worker 0; `lag` is how many epochs that is behind
    some epochs later."""
    executor = placement.replicas[0][0]
    newest = story.history.intent(story.query.epoch or 0)
    assert newest is not None
    keeper = read_reports(story.history.files, newest.generation)[executor].pid
    os.kill(keeper, signal.SIGSTOP)
    story.epochs(5)
    held, epoch = story.query.replicas()[executor][0].epoch, story.query.epoch
    assert held is not None
    assert epoch is not None
    os.kill(keeper, signal.SIGCONT)
    return {"lag": epoch - held, "stopped": epoch}


def hand_over(story: Story, placement: Placement) -> None:
    """There, where its replica is, and back."""
    ((target, *_), home) = placement.replicas[0], placement.homes[0]
    assert story.query.handover(0, target).wait(120) == "done"
    assert story.query.handover(0, home).wait(120) == "done"


def move(story: Story, placement: Placement) -> dict[str, Any]:
    """All bins of worker 0 to the worker where its replica is, and back."""
    before = story.query.routing()
    neighbour = placement.homes.index(placement.replicas[0][0])
    owners = np.where(before.owners == 0, neighbour, before.owners)
    there = gw.Routing(owners, WORKERS)
    for target in (there, before):
        assert story.query.migrate(target, strategy="all-at-once").wait(120) == "done"
        story.settled()
    return {"to": neighbour}


def twice(story: Story, placement: Placement) -> dict[str, Any]:
    """The executor of a worker, and then the one that the worker fled to."""
    first = placement.homes[2]
    story.kill(first)
    while not ((now := story.query.placement) and now.homes[2] != first):
        story.epochs(1)
    story.epochs(1)  # in which it runs there
    story.kill(now.homes[2])
    return {"second": now.homes[2]}


def at_random(story: Story, chance: random.Random) -> dict[str, Any]:
    """Any executor, at any moment of an epoch, whether or not the query has got over the last, with
    a migration or a handover under way; `open` says which of these were."""
    under_way = []
    for _ in range(3):
        story.epochs(chance.randint(1, 3))
        migration = wander(story, chance)
        story.epochs(chance.randint(0, 1))
        time.sleep(chance.uniform(0, 0.5))
        handover = hand_any_over(story, chance)
        time.sleep(chance.uniform(0, 0.2))
        story.kill(chance.choice(sorted(processes(story.spark.sparkContext))))
        under_way.append([migration.outcome, handover.outcome if handover else ""])
    assert story.query.migrate(MIXED, strategy="all-at-once", supersede=True).wait(120) == "done"
    return {"open": under_way}


def wander(story: Story, chance: random.Random) -> gw.Migration:
    """Ask for bins to go anywhere."""
    owners = np.array([chance.randrange(WORKERS) for _ in range(BINS)])
    strategy = chance.choice(["paced:0ms", "batched:2", "fluid"])
    return story.query.migrate(gw.Routing(owners, WORKERS), strategy=strategy, supersede=True)


def hand_any_over(story: Story, chance: random.Random) -> Handover | None:
    """Ask for any worker to go to any executor, unless it is there, or all of them are lost."""
    worker = chance.randrange(WORKERS)
    placement = story.query.placement
    targets = set(placement.executors) - {placement.homes[worker]} if placement else set()
    return story.query.handover(worker, chance.choice(sorted(targets))) if targets else None


def migrating(story: Story, placement: Placement) -> None:
    """Bins of each worker go to both others. Only one of them has a replica, so that some arrive
    at once, and what the others are to fetch ahead never is there, with so small a budget."""
    before = story.query.routing().owners
    ways = np.arange(BINS) % (WORKERS - 1) + 1
    target = gw.Routing((before + ways) % WORKERS, WORKERS)
    there = story.query.migrate(target, strategy="paced:0ms", deadline=10.0)
    while not there.progress.arrived:
        story.epochs(1)
    story.kill(placement.homes[0])
    assert_open(there)
    assert there.wait(120) == "done"


def during_handover(
    story: Story, stage: str, victim: Callable[[Placement], str], placement: Placement
) -> dict[str, Any]:
    """A handover ends, one way or the other, when the executor of either side is killed."""
    target = other(placement)
    handover = story.query.handover(2, target)
    story.await_running(lambda intent: stage in stages(intent))
    story.kill(victim(placement))
    under_way = handover.outcome
    assert handover.wait(120) in ("done", "failed"), handover
    return {"open": under_way, "target": target, "victim": victim(placement)}


def hang(story: Story, executor: str) -> None:
    """Stop it, until the query goes on without it; then wake it, which Spark has not ended yet."""
    process = Path("/proc", str(processes(story.spark.sparkContext)[executor]))
    os.kill(int(process.name), signal.SIGSTOP)
    while story.query.placement and executor in story.query.placement.executors:
        story.epochs(1)
    assert process.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "T"
    os.kill(int(process.name), signal.SIGCONT)


def drain(story: Story, executor: str) -> None:
    assert story.query.drain(executor).wait(120) == "done"
    story.kill(executor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
