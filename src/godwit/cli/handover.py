"""`godwit handover CHECKPOINT WORKER EXECUTOR`: let a worker run on another executor."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from godwit.cli import watch
from godwit.cli.command import add_command
from godwit.cli.output import add_json
from godwit.cli.requests import ask
from godwit.inspect.overview import Overview
from godwit.model.ids import ExecutorId, WorkerId
from godwit.model.requests import HandoverRequest
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit handover /data/checkpoints/counts 3 1
  godwit handover /data/checkpoints/counts 3 1 --watch

'godwit status' names the workers and executors. The executor fetches the worker's state first, if
it has no replica of it; the worker runs there from the epoch on in which it has it. This needs
workers that are pinned to executors, see docs/guide/operating.md.

exit code: 0 the query took it in, and with --watch it is done; 1 it was refused or has failed, 2
bad input, 3 no query has answered yet, or it is not running any more
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "handover",
        run,
        help="let a worker run on another executor",
        description="Ask a running query to let a worker run on another executor.",
        examples=EXAMPLES,
    )
    parser.add_argument("worker", metavar="WORKER", type=int, help="its number")
    parser.add_argument("executor", metavar="EXECUTOR", help="Spark's id of it")
    parser.add_argument("--watch", action="store_true", help="follow it to its end")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    driver = Overview.of(store).driver.number  # and there is a query
    worker, executor = WorkerId(arguments.worker), ExecutorId(arguments.executor)
    answer = ask(
        store,
        lambda intent: HandoverRequest(0, intent.generation, worker, executor),
        json=arguments.json,
        patience=arguments.patience,
    )
    answer.tell(json=arguments.json)
    if arguments.watch and answer.code == 0:
        return watch.follow(
            store,
            handover_of(driver, worker, executor),
            json=arguments.json,
            patience=arguments.patience,
        )
    return answer.code


def handover_of(
    driver: int, worker: WorkerId, executor: ExecutorId
) -> Callable[[Overview], watch.Sight | str]:
    """Looks at the newest handover of a worker to an executor that was asked of a driver."""

    def look(overview: Overview) -> watch.Sight | str:
        if overview.driver.number != driver:
            return f"driver {driver} has ended, and its executors and handovers with it"
        asked = [h for h in overview.handovers if (h.worker, h.target) == (worker, executor)]
        if not asked:
            return f"the handover of worker {worker} to executor {executor} is not known any more"
        handover = asked[-1]
        code = None if handover.is_open else int(handover.stage != "done")
        return watch.Sight(handover, str(handover), {"handover": asdict(handover)}, code)

    return look
