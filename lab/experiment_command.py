"""`python -m lab experiment`: a question, answered by runs of workloads."""

import argparse
from pathlib import Path
from typing import Any

from godwit.cli.output import check_directory, needs, note, print_table
from godwit.errors import ConfigError

EXAMPLES = """\
examples:
  python -m lab experiment --list
  python -m lab experiment strategies
  python -m lab experiment nexmark --full --output results
"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "experiment",
        help="answer a question by runs of workloads, in a page with pictures",
        description="Run an experiment on a local Spark. It leaves a page (NAME.html), its "
        "pictures (PNG) and all numbers (NAME.json).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment", nargs="?", metavar="NAME", help="see --list")
    parser.add_argument("--list", action="store_true", help="name all experiments")
    parser.add_argument("--full", action="store_true", help="with the sizes that figures are for")
    parser.add_argument(
        "--output", type=Path, default=Path(), metavar="DIR", help="where to (default: here)"
    )
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="run nothing: draw the page anew from NAME.json of a full run in DIR",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    # Spark and matplotlib take seconds to import, which other commands need not wait for.
    with needs("experiments", "Spark 4.2 and matplotlib (pip install 'godwit[experiments]')"):
        from lab.experiments.catalog import EXPERIMENTS, experiment
        from lab.experiments.laboratory import Lab
        from lab.experiments.redrawing import redraw
        from lab.tools.page import Page
        from lab.tools.tables import show_table
    if arguments.list:
        rows = [
            [e.name, e.question, *(f"{m:g} min" for m in e.minutes)] for e in EXPERIMENTS.values()
        ]
        print_table(["experiment", "answers", "takes", "--full"], rows)
        return 0
    if arguments.experiment is None:
        raise ConfigError("name an experiment: see python -m lab experiment --list")
    wanted = experiment(arguments.experiment)
    check_directory(arguments.output)
    if arguments.redraw:
        for path in redraw(arguments.output, wanted.name):
            note(str(path))
        return 0
    note(f"{wanted.name}: about {wanted.minutes[arguments.full]:g} minutes on two cores")
    findings = wanted.run(Lab(arguments.full, note))
    for section in findings.sections:
        if section.table:
            show_table(section.table.header, section.table.rows, section.title)
    for path in Page(wanted.name, wanted.question, findings).write(arguments.output):
        note(str(path))
    return 0
