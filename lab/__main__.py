"""The lab's one command: `python -m lab run`, `experiment`, `bench` and `hosts`."""

import sys
from collections.abc import Sequence

from godwit.cli import Parser, run_command
from lab import bench_command, experiment_command, hosts_command
from lab import run_command as workload_command

COMMANDS = (workload_command, experiment_command, bench_command, hosts_command)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m lab", description="Workloads, experiments and benchmarks.")
    return run_command(parser, COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main())
