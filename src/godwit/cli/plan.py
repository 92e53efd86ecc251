"""`godwit plan CHECKPOINT`: which bins would move, as a file."""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from godwit.cli.command import add_command
from godwit.cli.output import note, print_table, size
from godwit.errors import ConfigError
from godwit.inspect.overview import OperatorView, Overview
from godwit.inspect.sizes import Sizes, fetch_rate, lacking, work_seconds
from godwit.inspect.targets import PLANNERS, Measured, Planner, target
from godwit.log.history import History
from godwit.migration.strategies import STRATEGIES, Fetching, Known, Strategy, steps
from godwit.model.plan import Moves, Plan
from godwit.model.routing import Move, Routing
from godwit.model.text import duration, plural
from godwit.planner import transfers
from godwit.planner.projected import Projected
from godwit.storage.location import open_store

MOVES = 20  # that are shown
STEPS = 8  # of which the largest is told

EXAMPLES = """\
examples:
  godwit plan /data/checkpoints/counts --workers 4 --explain
  godwit plan /data/checkpoints/counts --workers 4 --out grow.json
  godwit apply /data/checkpoints/counts grow.json --strategy batched:64
  godwit plan /data/checkpoints/counts --rebalance --tau 0.2 --explain
  godwit plan /data/checkpoints/counts --drain 3 --out drain.json

planners: even (equally many bins a worker, few moves, long runs of bins), scattered (single bins,
the load of each worker within 1 + tau times the mean, few bytes moved), single-step (the same with
one interval of bins a worker, the fewest bytes), markov (as single-step, with migrations to come in
mind: --projected names a directory that 'godwit project' has filled), hash (equally many bins,
chosen at random). Load is the records of the last epochs. The plan is JSON, to be read and changed
by hand.
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "plan",
        run,
        help="plan a migration: other workers, a better balance, a worker without bins",
        description="Plan a migration and print it, or write it to a file. Nothing moves.",
        examples=EXAMPLES,
    )
    add_target(parser)
    parser.add_argument("--operator", help="needed if the query has several")
    parser.add_argument("--out", metavar="FILE", help="write the plan there; it must not exist")
    parser.add_argument(
        "--explain", action="store_true", help="show owners now and then, load, bytes and time"
    )


def add_target(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """What to plan for."""
    parser.add_argument("--workers", type=int, help="how many there shall be")
    parser.add_argument("--rebalance", action="store_true", help="spread the load better")
    parser.add_argument(
        "--drain", type=int, action="append", default=[], metavar="WORKER", help="give it no bins"
    )
    parser.add_argument(
        "--planner", choices=PLANNERS, help="default: even with --workers alone, else scattered"
    )
    parser.add_argument("--tau", type=float, help="load above the mean; default: 0.1, if possible")
    parser.add_argument(
        "--projected", type=Path, metavar="DIR", help="costs of migrations to come, for 'markov'"
    )


def has_target(arguments: argparse.Namespace) -> bool:
    return arguments.workers is not None or arguments.rebalance or bool(arguments.drain)


def planned(arguments: argparse.Namespace, routing: Routing, measured: Measured) -> Routing:
    """The target that the arguments ask for."""
    return target(
        _planner(arguments),
        routing,
        measured,
        workers=arguments.workers,
        drained=arguments.drain,
        tau=arguments.tau,
        projected=Projected.load(arguments.projected) if arguments.projected else None,
    )


def _planner(arguments: argparse.Namespace) -> Planner:
    loaded = arguments.rebalance or arguments.drain or arguments.tau is not None
    planner: Planner = arguments.planner or ("scattered" if loaded else "even")
    return planner


def run(arguments: argparse.Namespace) -> int:
    if not has_target(arguments):
        raise ConfigError("say what to plan: --workers N, --rebalance or --drain WORKER")
    store = open_store(arguments.checkpoint)
    overview, history = Overview.of(store), History(store)
    operator = overview.operator(arguments.operator)
    measured = Measured.of(history, operator.name, operator.routing.bins)
    goal = planned(arguments, operator.routing, measured)
    plan = Plan.of(operator.name, operator.routing, goal)
    unmoved = nothing_moves(arguments, plan, operator.routing)
    tell_idle(plan, operator.routing)
    if arguments.explain:
        if unmoved:
            print(unmoved)
        else:
            explain(operator, plan, measured, history)
        if not arguments.out:
            return 0
    if arguments.out:
        try:
            with Path(arguments.out).open("x") as file:
                file.write(plan.to_text())
        except FileExistsError:
            raise ConfigError(f"{arguments.out} exists already; name another file") from None
        note(f"{arguments.out}: {plan.bins:,} of {plural(operator.routing.bins, 'bin')} move")
    else:
        if unmoved:
            note(unmoved)
        sys.stdout.write(plan.to_text())
    return 0


def nothing_moves(arguments: argparse.Namespace, plan: Plan, routing: Routing) -> str | None:
    """One line about a plan that leaves everything as it is."""
    if (plan.moves, plan.workers, plan.routing) != ((), routing.workers, routing.digest()):
        return None
    evenly = arguments.workers is not None and _planner(arguments) == "even"
    how = "spread evenly over" if evenly else "where this plan wants them, on"
    return f"all bins are already {how} {plural(plan.workers, 'worker')}: nothing to move"


def tell_idle(plan: Plan, routing: Routing) -> None:
    """Some workers of a plan cannot have a bin."""
    if (idle := plan.workers - routing.bins) > 0:
        note(
            f"{plural(plan.workers, 'worker')} share {plural(routing.bins, 'bin')}: "
            f"at least {idle:,} have none"
        )


def explain(operator: OperatorView, plan: Plan, measured: Measured, history: History) -> None:
    """Which bins go where and why, what each worker then has, how long it takes: estimates."""
    pace, rate = history.pace(), fetch_rate(history, operator.name)
    origin, goal = operator.routing, plan.target(operator.routing)
    load, sizes = measured.load, measured.bytes
    weights = [sizes[moves.first : moves.last + 1].sum() for moves in plan.moves]
    workers = f"{origin.workers} -> {plural(plan.workers, 'worker')}"
    if origin.workers == plan.workers:
        workers = "the same workers"
    print(
        f"{operator.name}: {workers}, {plan.bins:,} of {plural(origin.bins, 'bin')} move, "
        f"about {size(sum(weights))}\n"
    )
    shares = [100 * np.bincount(r.owners, load, r.workers) / load.sum() for r in (origin, goal)]
    shown = [
        [_bins(moves), moves.source, moves.target, size(weight), _why(moves, origin, goal, shares)]
        for moves, weight in zip(plan.moves[:MOVES], weights, strict=False)
    ]
    print_table(["bins", "from", "to", "state", "because"], shown)
    if len(plan.moves) > MOVES:
        print(f"... and {len(plan.moves) - MOVES:,} more: see the plan")
    print()
    rows = []
    for worker in range(max(origin.workers, plan.workers)):
        before, after = (r.bins_of(worker) for r in (origin, goal))
        gets = sizes[np.setdiff1d(after, before)].sum()
        state = sizes[after].sum()
        had, gains = (f"{share[worker]:.1f} %" if worker < len(share) else "-" for share in shares)
        rows.append([worker, len(before), len(after), had, gains, size(gets), size(state)])
    print_table(["worker", "bins", "then", "load", "then", "to read", "state"], rows)
    print()
    if measured.seconds.any():
        now, then = (np.bincount(r.owners, measured.seconds).max() for r in (origin, goal))
        print(f"the busiest worker processes an epoch in {now:.2f} s, then in about {then:.2f} s")
    newest = history.last()
    trees = newest.trees[operator.name].values() if newest else ()
    lacks = lacking((tree.unpack() for tree in trees), origin, goal)
    fetching = Fetching(lacks, rate, work_seconds(history, operator.name)) if rate else None
    known = Known(origin, goal, pace, fetching=fetching)
    for kind in STRATEGIES:
        if (strategy := kind.suggested(plan.bins)) is not None:
            print(_forecast(strategy, known, sizes, rate))
    if rate:
        order = transfers(origin.owners, goal.owners, sizes, rate)
        phases = plural(len(order.phases), "epoch")
        print(
            f"in phases, one partner a worker: {phases}, {order.seconds:.1f} s of reading; "
            f"the busiest worker has {order.bound:.1f} s"
        )
        print(f"({size(rate)} a second were measured)")


def _forecast(strategy: Strategy, known: Known, sizes: Sizes, rate: float | None) -> str:
    """How long a strategy takes, and what its epochs cost."""
    estimate = strategy.estimate(known)
    if estimate.epochs is None:
        return f"{strategy}: no retained epoch has fetched, so how long that takes is not known"
    ahead = strategy.fetch_seconds(known.fetching.work) if known.fetching else None
    about = "about " if ahead is not None else ""
    text = f"{strategy}: {about}{plural(estimate.epochs, 'epoch')}"
    text += f", about {duration(estimate.seconds)}" if estimate.seconds else ""
    if ahead is not None:
        return f"{text}; destinations fetch ahead for {ahead:.2f} s in one"
    if estimate.epochs <= STEPS:
        moves = steps(strategy, known.routing, known.target)
        most = max((_most_read(step, sizes) for step in moves), default=0)
        text += f"; a worker reads at most {size(most)} in one"
        text += f", which makes it longer by about {most / rate:.1f} s" if rate else ""
    return text


def _most_read(step: list[Move], sizes: Sizes) -> float:
    """What the worker that gets most in a step reads in it."""
    bins, targets = [move.bin for move in step], [move.target for move in step]
    return float(np.bincount(targets, sizes[bins]).max())


def _bins(moves: Moves) -> str:
    return str(moves.first) if moves.first == moves.last else f"{moves.first}-{moves.last}"


def _why(moves: Moves, origin: Routing, goal: Routing, shares: list[Sizes]) -> str:
    """What the worker that loses bins, or the one that gets them, is moved for."""
    if not len(goal.bins_of(moves.source)):
        return f"{moves.source} ends without bins"
    if moves.target >= origin.workers or not len(origin.bins_of(moves.target)):
        return f"{moves.target} had no bins"
    had, mean = shares[0][moves.source], 100 / len(np.unique(goal.owners))
    if had > mean:
        return f"{moves.source} had {had:.1f} % of the load, the mean is {mean:.1f} %"
    if shares[1][moves.source] > had:
        return f"makes room at {moves.source} for bins with more load"
    return "the planner spreads bins so"
