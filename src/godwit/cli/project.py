"""`godwit project CHECKPOINT --out DIR`: what migrations to come will cost."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import check_directory, note
from godwit.errors import ConfigError
from godwit.log.files import Location
from godwit.log.history import History
from godwit.planner.chain import Chain
from godwit.planner.coarse import merged
from godwit.planner.iteration import Progress, Run, here, project
from godwit.planner.projected import Problem
from godwit.runtime.overview import OperatorView, Overview
from godwit.runtime.targets import Measured

EXAMPLES = """\
examples:
  godwit project /data/checkpoints/counts --out costs
  godwit project /data/checkpoints/counts --series hourly.txt --tau 0.3 --out costs
  godwit project /data/checkpoints/counts --partitionings 200000 --spark --out costs
  godwit plan /data/checkpoints/counts --workers 4 --planner markov --projected costs

The series is the number of workers over time, hour by hour for example: numbers with space between
them. Without one, the last migrations of the query tell how its number of workers changes. Adjacent
bins are merged until there are few enough ways to share them out; more of them make better plans,
and take longer: about three seconds for 10,000 in one process. Many are for Spark: --spark uses all
processors here, --spark MASTER those of a cluster, which has to see DIR under the same path. What
was interrupted goes on when asked for again.
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "project",
        run,
        help="project what migrations to come will cost, for 'plan --planner markov'",
        description="Learn how the number of workers changes, and compute for every way to share "
        "out the bins what the migrations after it will move. Nothing moves.",
        examples=EXAMPLES,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to keep it")
    parser.add_argument("--series", type=Path, metavar="FILE", help="numbers of workers over time")
    parser.add_argument("--operator", help="needed if the query has several")
    parser.add_argument("--tau", type=float, default=0.2, help="load above the mean; default: 0.2")
    parser.add_argument(
        "--gamma", type=float, default=0.8, help="what the next migration counts for; default: 0.8"
    )
    parser.add_argument(
        "--partitionings", type=int, default=20_000, help="at most so many; default: 20,000"
    )
    parser.add_argument(
        "--spark",
        nargs="?",
        const="local[*]",
        type=master,
        metavar="MASTER",
        help="compute in Spark's tasks; default: local[*], without --spark in one process",
    )


def master(text: str) -> str:
    if not re.fullmatch(r"local(-cluster)?(\[[\d*,]+\])?|yarn|(spark|k8s)://.+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no master of Spark, such as local[*]")
    return text


def run(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out.absolute()
    check_directory(out)
    if (out / "projected.json").exists():
        raise ConfigError(f"{out} holds projected costs already; use another directory")
    if (begun := out / "problem.json").exists():
        note(f"{out}: goes on with what was begun")
        problem = Problem.from_json(begun.read_text())
    else:
        problem = _problem(arguments)
    with _runner(arguments.spark) as runner:
        found = project(problem, out, run=runner, progress=_tell)
    numbers = ", ".join(map(str, problem.chain.nodes))
    note(
        f"{out}: {found.count:,} partitionings of {problem.tasks:,} runs of bins, for {numbers} "
        "workers"
    )
    return 0


@contextmanager
def _runner(master: str | None) -> Iterator[Run]:
    """What solves blocks: this process, or an application of Spark that ends with the context."""
    if master is None:
        yield here
        return
    from godwit.spark.projecting import OnSpark
    from godwit.workloads.session import session

    with session(master) as spark:
        yield OnSpark(spark, max(16, 4 * spark.sparkContext.defaultParallelism))


def _problem(arguments: argparse.Namespace) -> Problem:
    path = Location.parse(arguments.checkpoint).path
    operator = Overview.of(path).operator(arguments.operator)
    measured = Measured.of(History(path), operator.name, operator.routing.bins)
    chain = Chain.learn(_read(arguments.series) if arguments.series else _past(operator))
    return merged(
        chain,
        measured.load,
        measured.bytes,
        arguments.tau,
        arguments.gamma,
        arguments.partitionings,
    )


def _past(operator: OperatorView) -> list[int]:
    """The numbers of workers before and after each migration that was done."""
    done = [migration for migration in operator.past if migration.outcome == "done"]
    counts = [count for migration in done for count in migration.workers]
    if len(set(counts)) < 2:
        raise ConfigError(
            f"the last {len(done)} migrations of '{operator.name}' have not changed its number of "
            "workers, so there is nothing to learn from; give --series FILE"
        )
    return counts


def _read(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except ValueError as error:
        raise ConfigError(f"{path} is to hold numbers of workers: {error}") from None


def _tell(progress: Progress) -> None:
    if progress.done == progress.blocks:
        note(str(progress))
