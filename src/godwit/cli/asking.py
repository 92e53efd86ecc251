"""Asking a query that runs in another process, through its checkpoint, and its answer."""

import time
from pathlib import Path

from godwit.cli.output import note
from godwit.log.history import History
from godwit.log.journal import tick
from godwit.model.requests import Abort, Migrate

ANSWER_SECONDS = 20.0
LOOK_SECONDS = 0.1


def ask(checkpoint: Path, request: Migrate | Abort) -> tuple[int, int]:
    """Make a request and tell what the query answers: an exit code, and the request's id."""
    history = History.inspect(checkpoint)
    id = history.control.add(request).id
    tick(history.files)
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        if answer := _answer(history, id):
            note(answer)
            return (0 if answer.endswith("accepted") else 1), id
        time.sleep(LOOK_SECONDS)
    note(f"request {id} waits: no query has answered within {ANSWER_SECONDS:.0f} s")
    return 3, id


def _answer(history: History, id: int) -> str | None:
    """From an intent that was decided with the request taken in."""
    for epoch in reversed(history.intents()):
        intent = history.intent(epoch)
        if intent is None:
            continue  # pruned meanwhile
        if intent.control < id:
            return None
        if str(id) in intent.refused:
            return f"request {id} was refused: {intent.refused[str(id)]}"
        return f"request {id} was accepted"
    return None
