"""`godwit apply CHECKPOINT`: start a migration of a running query."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from godwit.cli import watch
from godwit.cli.command import add_command, seconds
from godwit.cli.output import add_json, note, print_line
from godwit.cli.plan import add_target, explain, has_target, nothing_moves, planned, tell_idle
from godwit.cli.requests import ask
from godwit.cli.status import progress
from godwit.errors import ConfigError
from godwit.inspect.overview import Overview
from godwit.inspect.targets import Measured, targets
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.migration.strategies import STRATEGIES, parse
from godwit.model.plan import Plan
from godwit.model.requests import (
    JointRequest,
    MigrateRequest,
    OperatorRequest,
    SplitRequest,
    jointly,
    parts_of,
)
from godwit.model.routing import Routing, check_bins
from godwit.model.text import plural
from godwit.storage.location import open_store
from godwit.storage.store import Store

EXAMPLES = """\
examples:
  godwit apply /data/checkpoints/counts --workers 4
  godwit apply /data/checkpoints/counts grow.json --strategy matched:1 --watch
  godwit apply /data/checkpoints/counts --workers 2 --deadline 60 --on-timeout rollback
  godwit apply /data/checkpoints/counts --rebalance --tau 0.2 --queue --watch
  godwit apply /data/checkpoints/counts --bins 16384

strategies:
{strategies}

exit code: 0 the query took it in, or there is nothing to move; 1 it was refused, 2 bad input, 3 no
query has answered yet: the request waits for the query to run, or for 'godwit abort'; or --queue
waits for a query that is not running. With --watch as 'godwit watch'
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "apply",
        run,
        help="start a migration, by a plan or to other workers or a better balance; or split bins",
        description="Ask a running query to migrate, or for other bins. It answers with its next "
        "epoch.",
        examples=EXAMPLES.format(strategies=_strategies()),
    )
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a file that 'godwit plan' wrote")
    instead = parser.add_argument_group("instead of a plan")
    add_target(instead)
    instead.add_argument(
        "--bins", type=int, help="split the bins into so many, or merge them; none moves"
    )
    parser.add_argument("--operator", help="default: that of the plan, or all")
    parser.add_argument("--strategy", default="paced", help="default: %(default)s")
    parser.add_argument("--deadline", type=seconds, metavar="SECONDS", help="from now")
    parser.add_argument(
        "--on-timeout", choices=["finish", "rollback"], default="finish", help="default: finish"
    )
    meanwhile = parser.add_mutually_exclusive_group()
    meanwhile.add_argument(
        "--supersede", action="store_true", help="end an open migration where it is"
    )
    meanwhile.add_argument(
        "--queue", action="store_true", help="wait for the end of an open migration, then ask"
    )
    parser.add_argument("--watch", action="store_true", help="follow it to its end")
    parser.add_argument("--dry-run", action="store_true", help="explain it, and ask for nothing")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.checkpoint)
    parse(arguments.strategy)  # refuses an unknown one
    if arguments.bins is not None:
        return _split(arguments, store)
    if arguments.plan is None and not has_target(arguments):
        raise ConfigError(
            "say what to do: a plan, --workers N, --rebalance, --drain WORKER or --bins N"
        )
    if arguments.plan is not None and has_target(arguments):
        raise ConfigError("a plan says what to do: give no --workers, --rebalance or --drain")
    options = (arguments.planner, arguments.tau, arguments.projected)
    if arguments.plan is not None and any(option is not None for option in options):
        raise ConfigError("a plan is made already: give --planner, --tau and --projected to it")
    plan = None if arguments.plan is None else _read(arguments.plan)
    overview, history = Overview.of(store), History(store)
    views = overview.named(plan.operator if plan else arguments.operator)
    names = [view.name for view in views]

    def goals(routings: Mapping[str, Routing]) -> dict[str, Routing]:
        if plan is not None:
            return {name: plan.target(routing) for name, routing in routings.items()}
        measured = {name: Measured.of(history, name, one.bins) for name, one in routings.items()}
        return targets(partial(planned, arguments), routings, measured)

    routings = {view.name: view.routing for view in views}
    found = goals(routings).items()
    shown = [plan] if plan else [Plan.of(name, routings[name], goal) for name, goal in found]
    for one in shown:
        tell_idle(one, routings[one.operator])
    unmoved = [nothing_moves(arguments, one, routings[one.operator]) for one in shown]
    if all(unmoved) and (arguments.dry_run or not _is_moving(overview, names)):
        if arguments.json:
            print_line({"id": None, "answer": "nothing to move", "reason": unmoved[0]})
        else:
            print(unmoved[0])
        return 0
    if arguments.dry_run:
        for view, one in zip(views, shown, strict=True):
            explain(view, one, Measured.of(history, view.name, view.routing.bins), history)
        return 0

    def request(decided: Intent) -> OperatorRequest | JointRequest:
        now = time.time()
        until = None if arguments.deadline is None else now + arguments.deadline
        origins = {name: decided.routings[name] for name in names}
        return jointly(
            [
                MigrateRequest(
                    0,
                    name,
                    origins[name],
                    goal,
                    arguments.strategy,
                    now,
                    until,
                    arguments.on_timeout,
                    arguments.supersede,
                )
                for name, goal in goals(origins).items()
            ]
        )

    while True:
        turn = turn_of(names)
        if arguments.queue and (
            code := watch.follow(store, turn, json=arguments.json, patience=arguments.patience)
        ):
            note("nothing was asked of the query: its open migration goes on at its next start")
            return code
        answer = ask(store, request, json=arguments.json, patience=arguments.patience)
        if not (arguments.queue and answer.answer == "refused" and _was_late(store, answer.id)):
            break
    answer.tell(json=arguments.json)
    if arguments.watch and answer.code == 0:
        return watch.follow(
            store,
            watch.migration_of(names, answer.id),
            json=arguments.json,
            patience=arguments.patience,
        )
    return answer.code


def _split(arguments: argparse.Namespace, store: Store) -> int:
    bins: int = arguments.bins
    check_bins(bins)
    if arguments.plan is not None or has_target(arguments):
        raise ConfigError(
            "--bins moves nothing: migrate before or afterwards, by a call of its own"
        )
    given = ("queue", "supersede", "watch", "deadline")
    if idle := [one for one in given if getattr(arguments, one)]:
        raise ConfigError(
            f"--{idle[0]} is about a migration, and --bins moves nothing: leave it out"
        )
    views = Overview.of(store).named(arguments.operator)
    if arguments.dry_run:
        for view in views:
            print(f"{view.name}: {view.routing.bins:,} -> {plural(bins, 'bin')}, none moves")
        return 0
    request = jointly([SplitRequest(0, view.name, bins) for view in views])
    answer = ask(store, lambda _: request, json=arguments.json, patience=arguments.patience)
    answer.tell(json=arguments.json)
    return answer.code


def turn_of(operators: Sequence[str]) -> Callable[[Overview], watch.Sight | str]:
    """Looks at the migrations of operators that come before one that is not asked for yet."""

    def look(overview: Overview) -> watch.Sight | str:
        for request in overview.waiting:
            if watch.is_for(request, operators):
                return watch.Sight(request, f"in line behind {request}", {"behind": request.id})
        found = [overview.operators[name].migration for name in operators]
        if (open := next(filter(None, found), None)) is None:
            names = ", ".join(f"'{name}'" for name in operators)
            return watch.Sight(None, f"no migration of {names} is open", {"behind": None}, 0)
        notable = (open.id, open.arrived, open.outcome)
        return watch.Sight(notable, f"in line behind {progress(open)}", {"behind": asdict(open)})

    return look


def _is_moving(overview: Overview, operators: Sequence[str]) -> bool:
    """Is a migration of these operators open, or asked for?"""
    asked = any(watch.is_for(request, operators) for request in overview.waiting)
    return asked or any(overview.operators[name].migration is not None for name in operators)


def _was_late(checkpoint: Store, id: int) -> bool:
    """Did another migration get in first, which is open or has moved bins meanwhile?"""
    views = Overview.of(checkpoint).operators
    return any(
        views[asked.operator].migration is not None or views[asked.operator].routing != asked.origin
        for asked in parts_of(History(checkpoint).requests.request(id))
        if isinstance(asked, MigrateRequest)
    )


def _strategies() -> str:
    """How each of them is written, and what it does."""
    width = max(len(strategy.usage) for strategy in STRATEGIES)
    return "\n".join(f"  {one.usage:<{width}}  {one.about}" for one in STRATEGIES)


def _read(file: str) -> Plan:
    text = Path(file).read_text(errors="replace")
    try:
        return Plan.from_text(text)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
