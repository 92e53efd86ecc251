"""`godwit history CHECKPOINT`: the migrations of a query."""

import argparse
import time
from dataclasses import asdict
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import add_json, print_json, print_table
from godwit.log.files import Location
from godwit.runtime.overview import Overview

EXAMPLES = """\
examples:
  godwit history /data/checkpoints/counts
  godwit history /data/checkpoints/counts --json | jq '.[-1].outcome'
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "history",
        run,
        help="the migrations of a query, the newest last",
        description="List the open migrations and those that ended last.",
        examples=EXAMPLES,
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    overview = Overview.of(Location.parse(arguments.checkpoint).path)
    migrations = [
        migration
        for operator in overview.operators.values()
        for migration in (*operator.past, operator.migration)
        if migration is not None
    ]
    migrations.sort(key=lambda migration: migration.id)
    if arguments.json:
        print_json([asdict(migration) for migration in migrations])
    elif not migrations:
        print("no migrations yet")
    else:
        print_table(
            ["id", "operator", "accepted", "workers", "bins", "strategy", "outcome", "epoch"],
            [
                [
                    m.id,
                    m.operator,
                    time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(m.accepted)),
                    f"{m.workers[0]} -> {m.workers[1]}",
                    m.bins,
                    m.strategy,
                    m.outcome,
                    m.epoch,
                ]
                for m in migrations
            ],
        )
    return 0
