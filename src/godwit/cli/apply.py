"""`godwit apply CHECKPOINT`: start a migration of a running query."""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
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
from godwit.inspect.targets import Measured
from godwit.log.history import History
from godwit.log.intent import Intent
from godwit.migration.strategies import STRATEGIES, parse
from godwit.model.plan import Plan
from godwit.model.requests import MigrateRequest, SplitRequest
from godwit.model.routing import check_bins
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
    parser.add_argument("--operator", help="needed without a plan if the query has several")
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
    overview = Overview.of(store)
    view = overview.operator(plan.operator if plan else arguments.operator)
    operator, history = view.name, History(store)
    measured = Measured.of(history, operator, view.routing.bins)
    shown = plan or Plan.of(operator, view.routing, planned(arguments, view.routing, measured))
    tell_idle(shown, view.routing)
    unmoved = nothing_moves(arguments, shown, view.routing)
    if unmoved and (arguments.dry_run or not _is_moving(overview, operator)):
        if arguments.json:
            print_line({"id": None, "answer": "nothing to move", "reason": unmoved})
        else:
            print(unmoved)
        return 0
    if arguments.dry_run:
        explain(view, shown, measured, history)
        return 0

    def request(decided: Intent) -> MigrateRequest:
        routing, now = decided.routings[operator], time.time()
        return MigrateRequest(
            0,
            operator,
            routing,
            plan.target(routing) if plan else planned(arguments, routing, measured),
            arguments.strategy,
            now,
            None if arguments.deadline is None else now + arguments.deadline,
            arguments.on_timeout,
            arguments.supersede,
        )

    while True:
        turn = turn_of(operator)
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
            watch.migration_of(operator, answer.id),
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
    view = Overview.of(store).operator(arguments.operator)
    if arguments.dry_run:
        print(f"{view.name}: {view.routing.bins:,} -> {plural(bins, 'bin')}, none moves")
        return 0
    answer = ask(
        store,
        lambda _: SplitRequest(0, view.name, bins),
        json=arguments.json,
        patience=arguments.patience,
    )
    answer.tell(json=arguments.json)
    return answer.code


def turn_of(operator: str) -> Callable[[Overview], watch.Sight | str]:
    """Looks at the migrations of an operator that come before one that is not asked for yet."""

    def look(overview: Overview) -> watch.Sight | str:
        for request in overview.waiting:
            if watch.is_for(request, operator):
                return watch.Sight(request, f"in line behind {request}", {"behind": request.id})
        if (open := overview.operators[operator].migration) is None:
            return watch.Sight(None, f"no migration of '{operator}' is open", {"behind": None}, 0)
        notable = (open.id, open.arrived, open.outcome)
        return watch.Sight(notable, f"in line behind {progress(open)}", {"behind": asdict(open)})

    return look


def _is_moving(overview: Overview, operator: str) -> bool:
    """Is a migration of an operator open, or asked for?"""
    asked = any(watch.is_for(request, operator) for request in overview.waiting)
    return asked or overview.operators[operator].migration is not None


def _was_late(checkpoint: Store, id: int) -> bool:
    """Did another migration get in first, which is open or has moved bins meanwhile?"""
    asked = History(checkpoint).requests.request(id)
    assert isinstance(asked, MigrateRequest)
    view = Overview.of(checkpoint).operators[asked.operator]
    return view.migration is not None or view.routing != asked.origin


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
