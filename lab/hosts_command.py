"""`python -m lab hosts`: several hosts on this machine, and a command on one of them."""

import argparse
from pathlib import Path
from typing import Any

from godwit.cli.output import needs, note
from godwit.errors import ConfigError

EXAMPLES = """\
examples:
  python -m lab hosts run bash
  python -m lab hosts run --workers 3 -- python examples/word_count.py
  python -m lab hosts run --on worker-1 -- ping driver
"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "hosts",
        help="run a command on one of several hosts that this machine pretends to be",
        description="Hosts with an address, a disk and processes of their own: driver, master, "
        "worker-1 and so on, and store. Spark and an S3 server run on them, and a command finds "
        "both by its environment. Needs root. docs/internals/hosts.md says more.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["run"], help="open the hosts, and run COMMAND on one")
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="what to run, and arguments")
    parser.add_argument("--on", default="driver", metavar="HOST", help="(default: driver)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="(default: 2)")
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="a worker (default: 1)")
    parser.add_argument("--memory", default="1g", help="of an executor (default: 1g)")
    parser.add_argument("--no-store", action="store_true", help="without an S3 server")
    parser.add_argument(
        "--input",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a directory that all hosts can read; may be given several times",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with needs("hosts", "Spark (pip install godwit)"):
        from lab.hosts.cluster import Cluster
        from lab.hosts.host import ROOT
    if arguments.workers < 1:
        raise ConfigError(f"--workers is a number from 1 on, not {arguments.workers}")
    cluster = Cluster(
        arguments.workers,
        arguments.input,
        store=not arguments.no_store,
        cores=arguments.cores,
        memory=arguments.memory,
        say=note,
    )
    if arguments.on not in cluster.names:
        known = ", ".join(cluster.names)
        raise ConfigError(f"no host is called '{arguments.on}': {known}")
    with cluster:
        host = cluster.hosts[arguments.on]
        note(f"{' '.join(arguments.words)} runs on {host.name}, {host.address}")
        here = Path.cwd()
        seen = here.is_relative_to(ROOT)  # it may be on the machine's /tmp, which hosts do not see
        return host.start(arguments.words, **({"cwd": here} if seen else {})).wait()
