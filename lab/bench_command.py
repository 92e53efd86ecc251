"""`python -m lab bench`: measurements, one file a question."""

import argparse
import importlib
import subprocess
import sys
import time
from typing import Any

from godwit.cli.output import note
from lab.bench.application import Bench

QUESTIONS = (
    "overhead",
    "aggregate",
    "growth",
    "larger",
    "state_machine",
    "sessions",
    "vectorised",
    "deduplicate",
    "list_state",
    "gap",
    "bins",
    "timers",
    "chained",
    "graph",
    "join",
    "migration",
    "pinned",
    "measuring",
    "planner",
    "projected",
    "source",
)


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="measure Godwit, mostly beside Spark's own operators",
        description="Answer all questions, or one; each in its own process.",
    )
    parser.add_argument("question", nargs="?", choices=QUESTIONS)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--epochs", type=int, help="length of the long run of 'bins'")
    parser.add_argument(
        "--only",
        default="",
        help="cases of 'aggregate' with this text, or this size of 'migration'",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.question is None:
        return _all(["--quick"] if options.quick else [])
    question = importlib.import_module(f"lab.bench.{options.question}")
    began = time.monotonic()
    note(f"{options.question}: {(question.__doc__ or '').splitlines()[0]}")
    conf = getattr(question, "CONF", {})
    with Bench.open(not options.quick, options.epochs, options.only, conf) as bench:
        question.run(bench)
    note(f"{options.question}: done in {time.monotonic() - began:.0f} s")
    return 0


def _all(arguments: list[str]) -> int:
    """One process for each question, so that none inherits the heap of another."""
    failed = [
        question
        for question in QUESTIONS
        if subprocess.run([sys.executable, "-m", "lab", "bench", question, *arguments]).returncode
    ]
    for question in failed:
        note(f"{question}: failed")
    return 1 if failed else 0
