"""`godwit plan CHECKPOINT --workers N`: which bins would move, as a file."""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from godwit.cli.command import add_command
from godwit.cli.output import note, print_table, size
from godwit.log.files import Location
from godwit.model.plan import Plan
from godwit.runtime.overview import OperatorView, Overview
from godwit.runtime.sizes import epochs_left
from godwit.strategies import AllAtOnce, Batched, Fluid

MOVES = 20  # that are shown

EXAMPLES = """\
examples:
  godwit plan /data/checkpoints/counts --workers 4 --explain
  godwit plan /data/checkpoints/counts --workers 4 --out grow.json
  godwit apply /data/checkpoints/counts grow.json --strategy batched:64

The plan is JSON, to be read and changed by hand. It moves as few bins as an even spread allows.
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "plan",
        run,
        help="plan a migration to another number of workers",
        description="Plan a migration and print it, or write it to a file. Nothing moves.",
        examples=EXAMPLES,
    )
    parser.add_argument("--workers", type=int, required=True, help="how many there shall be")
    parser.add_argument("--operator", help="needed if the query has several")
    parser.add_argument("--out", metavar="FILE", help="write the plan there; it must not exist")
    parser.add_argument(
        "--explain", action="store_true", help="show owners now and then, bytes and time"
    )


def run(arguments: argparse.Namespace) -> int:
    overview = Overview.of(Location.parse(arguments.checkpoint).path)
    operator = overview.operator(arguments.operator)
    target = operator.routing.spread(arguments.workers)
    plan = Plan.of(operator.name, operator.routing, target)
    if arguments.explain:
        explain(operator, plan, overview.pace)
        if not arguments.out:
            return 0
    if arguments.out:
        with Path(arguments.out).open("x") as file:
            file.write(plan.to_text())
        note(f"{arguments.out}: {plan.bins:,} of {operator.routing.bins:,} bins move")
    else:
        sys.stdout.write(plan.to_text())
    return 0


def explain(operator: OperatorView, plan: Plan, pace: float | None) -> None:
    """Which bins go where, what each worker then has, how long it takes; bytes are estimated."""
    origin, target = operator.routing, plan.target(operator.routing)
    weights = [operator.sizes[moves.first : moves.last + 1].sum() for moves in plan.moves]
    print(
        f"{operator.name}: {origin.workers} -> {plan.workers} workers, {plan.bins:,} of "
        f"{origin.bins:,} bins move, about {size(sum(weights))}\n"
    )
    shown = [
        [f"{moves.first}-{moves.last}", moves.source, moves.target, size(weight)]
        for moves, weight in zip(plan.moves[:MOVES], weights, strict=False)
    ]
    print_table(["bins", "from", "to", "state"], shown)
    if len(plan.moves) > MOVES:
        print(f"... and {len(plan.moves) - MOVES:,} more: see the plan")
    print()
    rows = []
    for worker in range(max(origin.workers, plan.workers)):
        before, after = (r.bins_of(worker) for r in (origin, target))
        gets = operator.sizes[np.setdiff1d(after, before)].sum()
        state = operator.sizes[after].sum()
        rows.append([worker, len(before), len(after), size(gets), size(state)])
    print_table(["worker", "bins", "then", "to read", "state"], rows)
    print()
    for strategy in (AllAtOnce(), Batched(64), Fluid()):
        epochs = epochs_left(strategy, origin, target)
        seconds = f", about {epochs * pace:.0f} s" if pace else ""
        print(f"{strategy}: {epochs:,} epoch{'s' * (epochs != 1)}{seconds}")
    print("paced: as many epochs as destinations need to fetch what they lack")
