"""`godwit verify CHECKPOINT`: audit a checkpoint."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from godwit.cli.command import add_command
from godwit.inspect.audit import verify
from godwit.model.text import plural
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit verify /data/checkpoints/counts
  godwit verify /data/checkpoints/counts --json | jq .findings

exit code: 0 the checkpoint is sound, 1 something is wrong with it, 2 it could not be audited
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "verify",
        run,
        help="audit a checkpoint: checksums, continuity, generations, who wrote which bin",
        description="Audit all retained epochs of a checkpoint. It changes nothing, and the query "
        "may be running meanwhile.",
        examples=EXAMPLES,
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    report = verify(open_store(arguments.checkpoint), _progress)
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        for finding in report.findings:
            print(finding)
        verdict = plural(len(report.findings), "problem") if report.findings else "sound"
        rows = plural(report.row_versions, "row version")
        print(
            f"{arguments.checkpoint}: epochs {report.epochs[0]} to {report.epochs[-1]}, "
            f"{plural(report.files, 'file')}, {rows}: {verdict}"
        )
    return 1 if report.findings else 0


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\raudited {done} of {plural(total, 'file')}", end=end, file=sys.stderr, flush=True)
