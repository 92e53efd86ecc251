"""`godwit stop CHECKPOINT`: stop a running query after its next epoch."""

import argparse
import time
from typing import Any

from godwit.cli.command import add_command, seconds
from godwit.cli.output import add_json, note, print_line
from godwit.cli.patience import Patience
from godwit.cli.requests import CODES, ask, not_running
from godwit.inspect.overview import Overview
from godwit.log.history import History
from godwit.model.requests import StopRequest
from godwit.storage.location import open_store
from godwit.storage.store import Store

EXAMPLES = """\
examples:
  godwit stop /data/checkpoints/counts
  godwit stop /data/checkpoints/counts --wait
  godwit stop /data/checkpoints/counts --timeout 60

The epoch in flight ends, and one more takes the request in: it is the last. Then the program's
await_termination() returns, as after query.stop(). Only the driver that runs now is stopped: a
later start runs normally. Open migrations go on when the query starts again.

exit code: 0 the query took it in, with --wait it has ended, or it was not running; 1 it was
refused, 2 bad input, 3 no query has answered yet, or it has not ended in time
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "stop",
        run,
        help="stop a running query after its next epoch",
        description="Ask a running query to stop.",
        examples=EXAMPLES,
    )
    parser.add_argument("--wait", action="store_true", help="until the query has ended")
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="wait for its end, but not longer"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    store = open_store(arguments.checkpoint)
    driver = Overview.of(store).driver
    if driver.gone:
        _tell_end(driver.number, f"{not_running(driver)}: nothing to stop", json=arguments.json)
        return 0
    answer = ask(
        store,
        lambda _: StopRequest(0, driver.number),
        json=arguments.json,
        timeout=arguments.timeout,
        patience=arguments.patience,
    )
    answer.tell(json=arguments.json)
    waits = arguments.wait or arguments.timeout
    if answer.answer == "refused" or not waits:
        return answer.code
    deadline = arguments.timeout and began + arguments.timeout
    if not _ends(store, driver.number, deadline, arguments.patience):
        note(f"driver {driver.number} has not ended within {arguments.timeout:g} s; it stops later")
        return CODES["waiting"]
    _tell_end(driver.number, f"driver {driver.number} has ended", json=arguments.json)
    return 0


def _ends(checkpoint: Store, driver: int, deadline: float | None, patience: Patience) -> bool:
    """Wait for the end of a driver, which another one may follow."""
    history = History.inspect(checkpoint)
    while True:
        newest = history.generations()[-1]
        if newest.number != driver or newest.gone:
            return True
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(patience.look)


def _tell_end(driver: int, text: str, *, json: bool) -> None:
    if json:
        print_line({"driver": driver, "ended": True})
    else:
        note(text)
