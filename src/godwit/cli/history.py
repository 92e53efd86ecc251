"""`godwit history CHECKPOINT`: the migrations and handovers of a query."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import add_json, moment, print_json, print_table
from godwit.cli.status import refusal
from godwit.inspect.overview import MigrationView, Overview
from godwit.placement.handover import HandoverState
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit history /data/checkpoints/counts
  godwit history /data/checkpoints/counts --json | jq '.migrations[-1].outcome'
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "history",
        run,
        help="the migrations, handovers and refused requests of a query, the newest last",
        description="List the open migrations and handovers, those that ended last, and requests "
        "that wait or were refused. Handovers are those of the driver that runs now: executors end "
        "with it.",
        examples=EXAMPLES,
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    overview = Overview.of(open_store(arguments.checkpoint))
    migrations = [
        migration for operator in overview.operators.values() for migration in operator.migrations
    ]
    migrations.sort(key=lambda migration: migration.id)
    if arguments.json:
        handovers = [asdict(handover) for handover in overview.handovers]
        waiting = [asdict(one) for one in overview.waiting]
        refused = [asdict(one) for one in overview.refused]
        print_json(
            {
                "migrations": [asdict(one) for one in migrations],
                "handovers": handovers,
                "waiting": waiting,
                "refused": refused,
            }
        )
        return 0
    if migrations:
        _print_migrations(migrations)
    else:
        print("no migrations yet")
    for request in overview.waiting:
        print(request)
    for one in overview.refused:
        print(refusal(one))
    if overview.handovers:
        print()
        _print_handovers(overview.handovers)
    return 0


def _print_migrations(migrations: Sequence[MigrationView]) -> None:
    print_table(
        ["id", "operator", "accepted", "workers", "bins", "strategy", "outcome", "epoch"],
        [
            [
                m.id,
                m.operator,
                moment(m.accepted),
                f"{m.workers[0]} -> {m.workers[1]}",
                m.bins,
                m.strategy,
                m.outcome,
                m.epoch,
            ]
            for m in migrations
        ],
    )


def _print_handovers(handovers: Sequence[HandoverState]) -> None:
    print_table(
        ["handover", "worker", "to executor", "asked for", "outcome", "epoch", "reason"],
        [
            [h.id, h.worker, h.target, _said(not h.automatic), str(h.stage), h.epoch, h.reason]
            for h in handovers
        ],
    )


def _said(fact: bool) -> str:
    return "yes" if fact else "no"
