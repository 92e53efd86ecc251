"""`godwit plan CHECKPOINT --workers N`: which bins would move, as a file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import note, print_table, size
from godwit.log.files import Location
from godwit.model.plan import Plan
from godwit.runtime.overview import OperatorView, Overview

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
        "--explain", action="store_true", help="show what each worker gives, gets and then has"
    )


def run(arguments: argparse.Namespace) -> int:
    overview = Overview.of(Location.parse(arguments.checkpoint).path)
    operator = overview.operator(arguments.operator)
    target = operator.routing.spread(arguments.workers)
    plan = Plan.of(operator.name, operator.routing, target)
    if arguments.explain:
        explain(operator, plan)
        if not arguments.out:
            return 0
    if arguments.out:
        with Path(arguments.out).open("x") as file:
            file.write(plan.to_text())
        note(f"{arguments.out}: {plan.bins:,} of {operator.routing.bins:,} bins move")
    else:
        sys.stdout.write(plan.to_text())
    return 0


def explain(operator: OperatorView, plan: Plan) -> None:
    """What each worker gives and gets; bytes are by the share of its bins."""
    target = plan.target(operator.routing)
    each = operator.bytes / operator.routing.bins
    moves = [(m.source, m.target, m.last - m.first + 1) for m in plan.moves]
    rows = []
    for worker in range(max(operator.routing.workers, plan.workers)):
        gives = sum(count for source, _, count in moves if source == worker)
        gets = sum(count for _, to, count in moves if to == worker)
        before, after = (len(r.bins_of(worker)) for r in (operator.routing, target))
        rows.append([worker, before, gives, gets, after, size(gets * each), size(after * each)])
    print(
        f"{operator.name}: {operator.routing.workers} -> {plan.workers} workers, {plan.bins:,} of "
        f"{operator.routing.bins:,} bins move, about {size(plan.bins * each)}"
    )
    print_table(["worker", "bins", "gives", "gets", "then", "to read", "state"], rows)
