"""Playing a story with real processes, and checking what came of it."""

import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from godwit.inspect.audit import verify
from godwit.log.history import History
from tests.support.kills.graph_truth import Truth, check, next_epoch
from tests.support.kills.running import Application, Launch
from tests.support.kills.story import ASKED, Kill, Life, Story

BY_TASKS = "files by tasks"  # that write outputs of operators to a table


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a story is played: it has the directory for itself, and a schema of the database."""

    launch: Launch
    home: Path
    dsn: str | None


@dataclass(frozen=True, slots=True)
class Played:
    story: Story
    has_postgres: bool
    kills: Counter[str]
    asked: Counter[str]  # what was accepted, and merges that were not
    truth: Truth

    @property
    def seen(self) -> set[str]:
        """What has happened."""
        lakes = [end for end in self.story.graph.ends if end.kind in ("delta", "iceberg")]
        copied = [end for end in lakes if not end.coded and self.truth.rows[end.name]]
        return {*self.kills, *self.asked, *([BY_TASKS] if copied and self.story.by_tasks else [])}

    def __str__(self) -> str:
        kills, asked = (
            ", ".join(f"{count} x {what}" for what, count in counted.items()) or "nothing"
            for counted in (self.kills, self.asked)
        )
        rows = ", ".join(f"{name}: {count}" for name, count in self.truth.rows.items())
        by = "tasks" if self.story.by_tasks else "the driver"
        return (
            f"story {self.story.seed}: {self.story.graph.told(has_postgres=self.has_postgres)}\n"
            f"  {self.truth.epochs} epochs, rows of sinks {rows}; files of tables by {by}\n"
            f"  killed {kills}; asked for {asked}"
        )


def play(story: Story, stage: Stage) -> Played:
    """Let a story happen; nothing of it is lost and nothing is there twice."""
    kills = Counter[str]()
    for number, life in enumerate(story.lives):
        kills += _live(story, number, life, stage)
        if History(stage.home / "checkpoint").last() is not None:
            assert verify(stage.home / "checkpoint").findings == []
    asked = stage.home / ASKED
    told = asked.read_text().splitlines() if asked.exists() else []
    has_postgres = stage.dsn is not None
    truth = check(story, stage.home, stage.dsn)
    return Played(story, has_postgres, kills, Counter(told), truth)


def _live(story: Story, number: int, life: Life, stage: Stage) -> Counter[str]:
    """One life; the kills that struck."""
    begun = next_epoch(stage.home)
    with stage.launch(stage.home) as application:
        lost = [application.arm(kill.fault(begun), signal.SIGKILL) for kill in life.lost]
        struck = None if life.kill is None else _arm(application, life.kill, begun)
        application.start(seed=story.seed, life=number, dsn=stage.dsn)
        if struck is not None and life.kill is not None and life.kill.later is not None:
            application.wait_for(struck)
            time.sleep(life.kill.later)  # so that it dies at any moment
            application.signal(signal.SIGKILL)
            application.wait()
        else:
            ended = 0 if life.kill is None else -signal.SIGKILL
            assert application.wait() == ended, f"life {number}: {life.kill}"
        assert all(fault.exists() for fault in lost), f"life {number}: {life.lost}"
    told = [f"a task {kill}" for kill in life.lost]
    return Counter([*told, *([] if life.kill is None else [str(life.kill)])])


def _arm(application: Application, kill: Kill, begun: int) -> Path:
    if kill.later is None:
        return application.arm(kill.fault(begun), signal.SIGKILL, -application.pid)
    return application.arm(kill.fault(begun), signal.SIGCONT)  # which changes nothing
