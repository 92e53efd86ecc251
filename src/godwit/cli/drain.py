"""`godwit drain CHECKPOINT EXECUTOR`: let an executor have no workers and replicas any more."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from godwit.cli import watch
from godwit.cli.command import add_command
from godwit.cli.output import add_json
from godwit.cli.requests import ask
from godwit.inspect.overview import Overview
from godwit.model.ids import ExecutorId
from godwit.model.requests import DrainRequest
from godwit.model.text import plural
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit drain /data/checkpoints/counts 1
  godwit drain /data/checkpoints/counts 1 --watch && take-away executor 1

Its workers are handed over to other executors, each as soon as the other one has its state. It
stays drained until the query ends. For a worker, see 'godwit apply --drain'.

exit code: 0 the query took it in, and with --watch it has no workers any more; 1 it was refused, 2
bad input, 3 no query has answered yet, or it is not running any more
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "drain",
        run,
        help="let an executor give away its workers and get no others",
        description="Ask a running query to give away the workers and replicas of an executor, so "
        "that it can be taken away.",
        examples=EXAMPLES,
    )
    parser.add_argument("executor", metavar="EXECUTOR", help="Spark's id of it")
    parser.add_argument("--watch", action="store_true", help="follow it to its end")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    driver = Overview.of(store).driver.number  # and there is a query
    executor = ExecutorId(arguments.executor)
    answer = ask(
        store,
        lambda intent: DrainRequest(0, intent.generation, executor),
        json=arguments.json,
        patience=arguments.patience,
    )
    answer.tell(json=arguments.json)
    if arguments.watch and answer.code == 0:
        return watch.follow(
            store, draining_of(driver, executor), json=arguments.json, patience=arguments.patience
        )
    return answer.code


def draining_of(driver: int, executor: ExecutorId) -> Callable[[Overview], watch.Sight | str]:
    """Looks at an executor that a driver drains.

    That is done when no worker is placed there, nor ran there in the newest published epoch.
    """

    def look(overview: Overview) -> watch.Sight | str:
        if overview.driver.number != driver:
            return f"driver {driver} has ended, and its executors with it"
        view = next((one for one in overview.executors if one.executor == executor), None)
        if view is None:
            return watch.Sight(None, f"executor {executor} is gone", {"executor": None}, 0)
        if not view.drained:
            return f"executor {executor} is not drained any more: all others were lost"
        ran = {
            w.worker for o in overview.operators.values() for w in o.workers if w.ran == executor
        }
        data = {"executor": asdict(view)}
        if view.workers or ran:
            left = max(view.workers, len(ran))
            return watch.Sight(left, f"executor {executor} has {plural(left, 'worker')}", data)
        return watch.Sight(0, f"executor {executor} is drained", data, 0)

    return look
