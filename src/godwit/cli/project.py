"""`godwit project CHECKPOINT --out DIR`: what migrations to come will cost."""

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from godwit.cli.command import add_command
from godwit.cli.output import check_directory, note
from godwit.errors import ConfigError, DamagedFileError
from godwit.inspect.overview import OperatorView, Overview
from godwit.inspect.targets import Measured
from godwit.log.history import History
from godwit.planner.chain import Chain, nodes_for
from godwit.planner.iteration import SolveBlocks, SweepProgress, project, solve_in_process
from godwit.planner.projected import UNREADABLE, Problem, write_text
from godwit.planner.task_merging import merge_tasks
from godwit.storage.location import open_store

ASKED = "asked.json"  # beside what `godwit.planner.work` keeps

EXAMPLES = """\
examples:
  godwit project /data/checkpoints/counts --out costs
  godwit project /data/checkpoints/counts --series hourly.txt --tau 0.3 --out costs
  godwit project /data/checkpoints/counts --series records.txt --capacity 5000 --out costs
  godwit project /data/checkpoints/counts --partitionings 200000 --spark --out costs
  godwit plan /data/checkpoints/counts --workers 4 --planner markov --projected costs

The series is the number of workers over time, hour by hour for example: numbers with space between
them. With --capacity it is the load over time, in any unit, of which each worker can do so much.
Without a series, the last migrations of the query tell how its number of workers changes. Adjacent
bins are merged until there are few enough ways to share them out; more of them make better plans,
and take longer: about three seconds for 10,000 in one process. Many are for Spark: --spark uses all
processors here, --spark MASTER those of a cluster, which has to see DIR under the same path. What
was interrupted goes on when the same is asked for again.
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
    parser.add_argument(
        "--capacity", type=float, metavar="LOAD", help="of a worker: the series is loads over time"
    )
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


@dataclass(frozen=True, slots=True)
class Asked:
    """What costs are asked for: what was begun goes on for the same only, with the load of then."""

    checkpoint: str
    operator: str
    bins: int
    chain: Chain
    tau: float
    gamma: float
    partitionings: int

    @classmethod
    def of(cls, arguments: argparse.Namespace, operator: OperatorView) -> Self:
        return cls(
            str(open_store(arguments.checkpoint)),
            operator.name,
            operator.routing.bins,
            Chain.learn(_series(arguments, operator)),
            arguments.tau,
            arguments.gamma,
            arguments.partitionings,
        )

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / ASKED, json.dumps(asdict(self), indent=1) + "\n")

    def check(self, directory: Path, learned: bool) -> None:
        """Refuse a directory in which something else was begun; a chain that is `learned` from the
        history of the query moves on, as the load does."""
        file = directory / ASKED
        now = json.loads(json.dumps(asdict(self)))
        if learned:
            del now["chain"]
        try:
            before = json.loads(file.read_text())
            told = [f"{name} {_told(before[name])}" for name in now if before[name] != now[name]]
        except UNREADABLE as error:
            raise DamagedFileError(
                str(file), f"does not tell what was begun there ({error!r}); use another --out"
            ) from None
        if told:
            raise ConfigError(
                f"{directory} was begun with {', '.join(told)}, not as asked for now; use another "
                "--out, or delete it"
            )


def _told(value: Any) -> str:
    """A setting, in the words of a person: of a chain its numbers of workers."""
    if isinstance(value, dict):
        return f"(of {', '.join(map(str, value['nodes']))} workers)"
    return str(value)


def run(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out.absolute()
    check_directory(out)
    if (out / "projected.json").exists():
        raise ConfigError(f"{out} holds projected costs already; use another directory")
    store = open_store(arguments.checkpoint)
    operator = Overview.of(store).operator(arguments.operator)
    asked = Asked.of(arguments, operator)
    if (out / "problem.json").exists():
        asked.check(out, learned=arguments.series is None)
        problem = _begun(out)
        note(f"{out}: goes on with what was begun")
    else:
        measured = Measured.of(History(store), operator.name, asked.bins)
        problem = merge_tasks(
            asked.chain,
            measured.load,
            measured.bytes,
            asked.tau,
            asked.gamma,
            asked.partitionings,
        )
        asked.write(out)
    with _runner(arguments.spark) as runner:
        found = project(problem, out, run=runner, progress=_tell)
    note(
        f"{out}: {found.count:,} partitionings of {problem.tasks:,} runs of bins, for "
        f"{', '.join(map(str, problem.chain.nodes))} workers"
    )
    return 0


@contextmanager
def _runner(master: str | None) -> Iterator[SolveBlocks]:
    """What solves blocks: this process, or an application of Spark that ends with the context."""
    if master is None:
        yield solve_in_process
        return
    from godwit.spark.projection import OnSpark
    from godwit.spark.session import session

    with session(master) as spark:
        yield OnSpark(spark, max(16, 4 * spark.sparkContext.defaultParallelism))


def _series(arguments: argparse.Namespace, operator: OperatorView) -> list[int]:
    """Numbers of workers over time."""
    path, capacity = arguments.series, arguments.capacity
    if path is None:
        if capacity is not None:
            raise ConfigError("--capacity is for loads over time: give --series FILE, too")
        return _past(operator)
    try:
        words = path.read_text().split()
        if capacity is None:
            return [int(word) for word in words]
        loads = [float(word) for word in words]
    except ValueError as error:
        what = "numbers of workers" if capacity is None else "loads"
        raise ConfigError(f"{path} is to hold {what}: {error}") from None
    return nodes_for(loads, capacity)


def _begun(directory: Path) -> Problem:
    file = directory / "problem.json"
    try:
        return Problem.from_json(file.read_text())
    except ConfigError as error:
        raise DamagedFileError(str(file), f"{error}; use another --out") from None


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


def _tell(progress: SweepProgress) -> None:
    if progress.done == progress.blocks:
        note(str(progress))
