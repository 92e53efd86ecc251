"""`python -m lab run`: a workload, live."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from godwit.cli.output import check_directory, needs, note, print_table
from godwit.errors import ConfigError
from godwit.model.time import micros
from lab.workloads.rate import SECOND, Rate

if TYPE_CHECKING:
    from lab.workloads.plan import WorkloadRun
    from lab.workloads.report import RunReport

EXAMPLES = """\
examples:
  python -m lab run --list
  python -m lab run q5 --rate 20k --for 60s --migrate "at 20s to 4 workers with paced"
  python -m lab run word-count --rate "5k for 20s, 50k for 10s" --report words
"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a workload live, in an open loop, with migrations on the way",
        description="Run a workload on a local Spark: events take place at their rate, whether or "
        "not they can be processed as fast. Shows progress, and at the end the latencies.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="see --list")
    parser.add_argument("--list", action="store_true", help="name all workloads")
    parser.add_argument("--rate", default="10k", help="events a second (default: 10k)")
    parser.add_argument("--workers", type=int, default=2, help="at the start (default: 2)")
    parser.add_argument("--for", dest="length", default="60 s", help="how long (default: 60 s)")
    parser.add_argument(
        "--warm-up",
        default="10 s",
        help="not measured; Spark takes half a minute to settle (default: 10 s)",
    )
    parser.add_argument(
        "--migrate",
        action="append",
        default=[],
        metavar="MOVE",
        help='"at 20s to 4 workers with paced" or "at 20s rebalance"; may be given several times',
    )
    parser.add_argument("--cores", default="*", help="of the local Spark (default: all)")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help="leave a page and all numbers there",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    # Spark and matplotlib take seconds to import, which other commands need not wait for.
    with needs("workloads", "Spark 4.2 and matplotlib (pip install 'godwit[experiments]')"):
        from godwit.spark.session import session
        from lab.tools.session import scratch
        from lab.workloads.catalog import WORKLOADS, workload
        from lab.workloads.plan import ScheduledMove, WorkloadRun
        from lab.workloads.runner import INTERRUPTED
        from lab.workloads.runner import run as play
    if arguments.cores != "*" and not (arguments.cores.isdecimal() and int(arguments.cores)):
        raise ConfigError(f"--cores is a number from 1 on, or '*', not '{arguments.cores}'")
    if arguments.report:
        check_directory(arguments.report)
    if arguments.list:
        print_table(["workload", "computes"], [[w.name, w.about] for w in WORKLOADS.values()])
        return 0
    if arguments.workload is None:
        raise ConfigError("name a workload: python -m lab run --list tells which there are")
    wanted = WorkloadRun(
        workload(arguments.workload),
        Rate.parse(arguments.rate),
        arguments.workers,
        micros(arguments.length) / SECOND,
        micros(arguments.warm_up) / SECOND,
        tuple(ScheduledMove.parse(text) for text in arguments.migrate),
    )
    wanted.check()
    report = wanted.report()
    try:
        with session(f"local[{arguments.cores}]") as spark, scratch() as directory:
            play(spark, wanted, directory, note, report)
    except KeyboardInterrupt:
        report.ending = INTERRUPTED  # perhaps before the query had begun
        raise
    finally:  # whatever happened, what was seen until then is told
        if report.epochs or report.ending:
            tell(wanted, report, arguments.report)
    return 0


def tell(wanted: "WorkloadRun", report: "RunReport", directory: Path | None) -> None:
    """Print what was seen, and leave a page of it if there is a directory for that."""
    from lab.tools.page import Findings, Page, Section
    from lab.workloads.overview import latency_table, overview, sentences

    told = sentences(report)
    name = wanted.workload.name
    table = latency_table({name: report}).without_labels()
    if table.rows:
        print_table(table.header, table.rows)
    print(told)
    if directory:
        sections = [Section("What was seen", told)]
        for section in overview({name: report}):
            plain = section.table and section.table.without_labels()
            sections.append(replace(section, table=plain))
        page = Page(name, wanted.workload.about, Findings(sections, {name: report}))
        for path in page.write(directory):
            note(str(path))
