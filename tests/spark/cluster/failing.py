"""A query on three executors that are killed: `python -m tests.spark.cluster.failing HOME JAVA`.

It counts by key, three workers with a replica each. What happened is left in HOME/events.json: by
name, the epoch before it, the placement of that, and the epoch in which the query had got over it.
In the end it kills itself, while a handover is open; started again, it goes on for some epochs.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.model.placement import Placement
from godwit.workloads.executors import processes
from tests.spark.cluster.application import CONF, start

EVENTS = "events.json"
WORKERS = 3
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
    events: list[dict[str, Any]] = field(default_factory=list)

    def tell(self, name: str, happen: Callable[[Placement], object]) -> None:
        """Let something happen to a settled query, and wait until it has got over it."""
        before = self.settled()
        event = {"name": name, "before": self.query.epoch, "placement": before.to_json()}
        happen(before)
        self.settled()
        self.events.append(event | {"after": self.query.epoch})

    def settled(self) -> Placement:
        """Wait until there are three executors, no handover is open, and every worker has a replica
        that is up to date."""
        epoch = self.query.epoch or 0
        while True:
            epoch = max(epoch + 1, self.query.epoch or 0)
            assert self.query.await_epoch(epoch, 120), "the query does not go on"
            placement = self.query.placement
            held = self.query.replicas()
            if placement and len(placement.executors) == WORKERS and not self.query.handovers:
                newest = [
                    held.get(executor, {}).get(worker)
                    for worker, (executor, *_) in enumerate(placement.replicas)
                ]
                if all(one and one.epoch and one.epoch >= epoch - 2 for one in newest):
                    return placement

    def kill(self, *executors: str) -> None:
        """SIGKILL, all at once."""
        known = processes(self.spark.sparkContext)
        for executor in known.keys() & executors:
            os.kill(known[executor], signal.SIGKILL)

    def epochs(self, count: int) -> None:
        assert self.query.await_epoch((self.query.epoch or 0) + count, 120)


def main(home: Path, java: str) -> None:
    options = {f"spark.{side}.extraJavaOptions": java for side in ("driver", "executor")}
    builder = SparkSession.builder.master(f"local-cluster[{WORKERS},1,1024]")
    spark = builder.config(map=CONF | MORE | options).getOrCreate()
    query = start(spark, home, workers=WORKERS, replicas=1)
    story = Story(spark, query)
    if not (home / EVENTS).exists():
        live(story)
        (home / EVENTS).write_text(json.dumps(story.events))
        query.handover(2, other(story.settled()))
        while not is_open(History(home / "checkpoint").intent((query.epoch or 0) + 1)):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    story.settled()
    query.stop()


def is_open(intent: Intent | None) -> bool:
    """Does an epoch that runs know of a handover that somebody asked for?"""
    placement = (intent and intent.placement) or {"handovers": []}
    stages = [one["stage"] for one in placement["handovers"] if not one["automatic"]]
    return bool({"building", "switched"} & set(stages))


def live(story: Story) -> None:
    story.tell("nothing", lambda _: story.epochs(4))
    story.tell("handover", lambda placement: hand_over(story, placement))
    story.tell("a worker's executor", lambda placement: story.kill(placement.homes[0]))
    story.tell("twice in a row", lambda placement: twice(story, placement))
    story.tell("all executors", lambda placement: story.kill(*placement.executors))
    story.tell("all copies of a worker", lambda p: story.kill(p.homes[0], p.replicas[0][0]))
    story.tell("at random", lambda _: at_random(story))
    story.tell("during a migration", lambda placement: migrating(story, placement))
    story.tell("origin of a handover", lambda p: during_handover(story, p, p.homes[2]))
    story.tell("target of a handover", lambda p: during_handover(story, p, other(p)))
    story.tell("hung", lambda placement: hang(story, placement.homes[0]))
    story.tell("drained", lambda placement: drain(story, placement.homes[1]))


def other(placement: Placement) -> str:
    """An executor that has neither worker 2 nor its replica."""
    return next(
        one
        for one in placement.executors
        if one != placement.homes[2] and one not in placement.replicas[2]
    )


def hand_over(story: Story, placement: Placement) -> None:
    """There, where its replica is, and back."""
    ((target, *_), home) = placement.replicas[0], placement.homes[0]
    assert story.query.handover(0, target).wait(120) == "done"
    assert story.query.handover(0, home).wait(120) == "done"


def twice(story: Story, placement: Placement) -> None:
    """The executor of a worker, and then the one that the worker fled to."""
    story.kill(placement.homes[2])
    story.epochs(1)
    now = story.query.placement
    assert now is not None
    story.kill(now.homes[2])


def at_random(story: Story) -> None:
    """Any executor, at any moment of an epoch, whether or not the query has got over the last."""
    chance = random.Random(6)
    for _ in range(3):
        story.epochs(chance.randint(1, 4))
        time.sleep(chance.uniform(0, 0.5))
        story.kill(chance.choice(sorted(processes(story.spark.sparkContext))))


def migrating(story: Story, placement: Placement) -> None:
    bins = story.query.routing().bins
    turned = gw.Routing.even(bins, WORKERS).owners[::-1].copy()
    there = story.query.migrate(gw.Routing(turned, WORKERS), strategy="batched:2")
    story.epochs(1)
    story.kill(placement.homes[0])
    assert there.wait(120) == "done"


def during_handover(story: Story, placement: Placement, victim: str) -> None:
    """A handover ends, one way or the other, when the executor of either side is killed."""
    handover = story.query.handover(2, other(placement))
    story.kill(victim)
    assert handover.wait(120) in ("done", "failed"), handover


def hang(story: Story, executor: str) -> None:
    """Stop it, until the query goes on without it; then wake it."""
    pid = processes(story.spark.sparkContext)[executor]
    os.kill(pid, signal.SIGSTOP)
    story.epochs(3)
    with suppress(ProcessLookupError):  # Spark may have ended it
        os.kill(pid, signal.SIGCONT)


def drain(story: Story, executor: str) -> None:
    assert story.query.drain(executor).wait(120) == "done"
    story.kill(executor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
