"""Asking a query that runs in another process, through its checkpoint, and its answer."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from godwit.cli.output import note, print_line
from godwit.cli.patience import USUAL, Patience
from godwit.log.history import Generation, History
from godwit.log.intent import Intent
from godwit.log.ticks import tick
from godwit.model.requests import Request
from godwit.storage.location import Location

CODES = {"accepted": 0, "refused": 1, "waiting": 3}


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the request with this id."""

    id: int
    answer: Literal["accepted", "refused", "waiting"]
    reason: str = ""

    @property
    def code(self) -> int:
        """The exit code that says so."""
        return CODES[self.answer]

    def tell(self, *, json: bool) -> None:
        if json:
            print_line(asdict(self))
        else:
            reason = f": {self.reason}" if self.reason else ""
            verb = "is stored and waits" if self.answer == "waiting" else f"was {self.answer}"
            note(f"request {self.id} {verb}{reason}")


def ask(
    checkpoint: Location,
    make: Callable[[Intent], Request],
    *,
    json: bool,
    timeout: float | None = None,
    patience: Patience = USUAL,
) -> Answer:
    """Make a request of what is decided now, and wait for some epochs for the answer, but not for
    more than `timeout` seconds.

    A driver that is known to have ended is not waited for. Without `json` it is told that we wait.
    """
    history = History.inspect(checkpoint)
    intent = history.intent(max(history.intents()))
    assert intent is not None
    id = history.requests.add(make(intent), after=intent.taken).id
    tick(history.files)
    driver = history.generations()[-1]
    gone = driver.gone
    if answer := _answer(history, id):  # it may have ended after it
        return answer
    if gone:
        return Answer(id, "waiting", f"{not_running(driver)}; its next start takes the request in")
    seconds = max(patience.answer, min(3 * (history.pace() or 0.0), patience.longest))
    seconds = seconds if timeout is None else min(seconds, timeout)
    if not json:
        note(f"request {id} is stored; the query has {seconds:.0f} s to answer")
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if answer := _answer(history, id):
                return answer
            time.sleep(patience.look)
    except KeyboardInterrupt:
        note(f"request {id} is stored: the query takes it in, although nobody waits for its answer")
        raise
    return Answer(id, "waiting", f"no query has answered within {seconds:.0f} s")


def not_running(driver: Generation) -> str:
    """What is the matter with a query whose driver is gone."""
    if driver.ended:
        return f"the query is not running (driver {driver.number} has ended)"
    return f"the query is not running (there is no process {driver.pid} on this host)"


def _answer(history: History, id: int) -> Answer | None:
    """From the first intent that was decided with the request taken in: later ones may have
    forgotten a refusal."""
    first: Intent | None = None
    for epoch in reversed(history.intents()):
        intent = history.intent(epoch)
        if intent is None:
            continue  # pruned meanwhile
        if intent.taken < id:
            break
        first = intent
    if first is None:
        return None
    if id in first.refused:
        return Answer(id, "refused", first.refused[id])
    return Answer(id, "accepted")
