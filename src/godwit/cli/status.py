"""`godwit status CHECKPOINT`: what a query is doing."""

import argparse
from dataclasses import asdict, replace
from typing import Any

from godwit.cli.command import add_command
from godwit.cli.output import add_json, moment, print_json, print_table, size
from godwit.inspect.overview import (
    ExecutorView,
    MigrationView,
    OperatorView,
    Overview,
    ReplicaView,
    WorkerView,
)
from godwit.log.requests import RefusedRequest
from godwit.model.text import duration, plural
from godwit.model.time import show
from godwit.storage.location import open_store

EXAMPLES = """\
examples:
  godwit status /data/checkpoints/counts
  godwit status /data/checkpoints/counts --graph
  godwit status /data/checkpoints/counts --json | jq .operators.counts.workers
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "status",
        run,
        help="workers, bins, state, load and open migrations of a query",
        description="Tell what a query is doing, from its checkpoint; the query may be running.",
        examples=EXAMPLES,
    )
    parser.add_argument("--graph", action="store_true", help="how its operators hang together")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    overview = Overview.of(open_store(arguments.checkpoint))
    if arguments.json:
        print_json(to_json(overview))
        return 0
    if arguments.graph:
        print(overview.graph)
        return 0
    driver = overview.driver
    print(f"epoch {overview.epoch}" + _in_flight(overview) + _backlog(overview))
    gone = ": not running" if driver.gone else ""
    process = f"process {driver.pid} on {driver.host} since {moment(driver.time)}"
    print(f"driver {driver.number}: {process}{gone}")
    if overview.executors:
        print(f"executors: {', '.join(map(_executor, overview.executors))}")
    for handover in overview.handovers:
        if handover.is_open:
            print(handover)
    for waiting in overview.waiting:
        print(waiting)
    for refused in overview.refused:
        if refused.epoch is not None:  # older ones are for 'godwit history'
            print(refusal(refused))
    for operator in overview.operators.values():
        _print_operator(operator, overview.epoch)
    return 0


def to_json(overview: Overview) -> dict[str, Any]:
    """Everything but the owners of single bins, of which there may be a million.

    A driver that is `gone` is not running; of one on another host that is not known. What waits
    for it now, nobody has looked at.
    """
    data = asdict(replace(overview, graph=None))
    if overview.graph:
        data["graph"] = overview.graph.graph.to_json()
    if overview.driver.gone:
        data |= {"backlog": None, "unread": None}
    data["driver"]["gone"] = overview.driver.gone
    for name, operator in overview.operators.items():
        entry = data["operators"][name]
        del entry["sizes"]
        entry["routing"] = {"bins": operator.routing.bins, "digest": operator.routing.digest()}
        entry |= {"records": operator.records, "imbalance": round(operator.imbalance, 3)}
    return data


def progress(migration: MigrationView) -> str:
    """One line about an open migration."""
    before, after = migration.workers
    text = (
        f"migration {migration.id}: {before} -> {plural(after, 'worker')}, {migration.strategy}, "
        f"{migration.outcome}, {migration.arrived:,} of {plural(migration.bins, 'bin')}"
    )
    if migration.bytes_left:
        text += f", {size(migration.bytes_left)} to go"
        if migration.seconds_left is not None:
            text += f" in about {duration(migration.seconds_left)}"
    return text


def refusal(request: RefusedRequest) -> str:
    """One line about a request that was refused."""
    when = "" if request.asked is None else f"{moment(request.asked)}: "
    return f"{when}{request}"


def _executor(view: ExecutorView) -> str:
    """
    >>> _executor(ExecutorView("1", workers=1, replicas=2, drained=False))
    '1 (1 worker, 2 replicas)'
    """
    parts = [plural(view.workers, "worker"), plural(view.replicas, "replica")]
    return f"{view.executor} ({', '.join([*parts, 'drained'] if view.drained else parts)})"


def _in_flight(overview: Overview) -> str:
    return f", epoch {overview.begun} in flight" if overview.begun > overview.epoch else ""


def _backlog(overview: Overview) -> str:
    """What waits as of the newest decided epoch, while the query runs."""
    if overview.driver.gone:
        return ""
    if overview.backlog is None and overview.unread is not None:
        return f", {overview.unread}"
    if overview.backlog is None:
        return ", backlog not told by the sources"
    return f", backlog {overview.backlog:,}"


def _print_operator(operator: OperatorView, epoch: int) -> None:
    print(
        f"\n{operator.name}: {plural(len(operator.workers), 'worker')}, "
        f"{plural(operator.routing.bins, 'bin')}, {plural(operator.row_versions, 'row version')}, "
        f"{size(operator.bytes)} in {plural(operator.files, 'file')}; last epoch "
        f"{plural(operator.records, 'record')}, imbalance {operator.imbalance:.2f}"
    )
    if operator.watermark is not None:
        print(f"watermark {show(operator.watermark)}")
    for migration in operator.migrations:
        if migration is operator.migration or migration.outcome == "ending":
            print(progress(migration))
    heads = ["worker", "bins", "row versions", "state", "records", "seconds"]
    rows: list[list[Any]] = [
        [w.worker, w.bins, w.row_versions, size(w.bytes), w.records, w.seconds]
        for w in operator.workers
    ]
    if any(worker.slot is not None for worker in operator.workers):
        heads += ["slot", "executor", "fetched", "replicas"]
        for row, worker in zip(rows, operator.workers, strict=True):
            copies = ", ".join(_replica(replica, epoch) for replica in worker.replicas)
            row += [worker.slot, _place(worker), size(worker.fetched), copies or "none"]
    print_table(heads, rows)


def _place(worker: WorkerView) -> str:
    """The executor that a worker is placed on, and where it ran, if that was elsewhere."""
    elsewhere = worker.ran not in ("", worker.executor)
    return f"{worker.executor} (ran on {worker.ran})" if elsewhere else worker.executor


def _replica(replica: ReplicaView, epoch: int) -> str:
    """Where a copy is, and how many epochs and bytes it is behind.

    >>> _replica(ReplicaView("1", epoch=7, lacking=2_000), epoch=9)
    '1 (2 behind, 2.0 KiB to fetch)'
    >>> _replica(ReplicaView("1", epoch=9, lacking=0), epoch=9)
    '1 (up to date)'
    """
    lack = f", {size(replica.lacking)} to fetch" if replica.lacking else ""
    if replica.epoch is None:
        return f"{replica.executor} (not ready{lack})"
    lag = epoch - replica.epoch
    return f"{replica.executor} ({f'{lag} behind{lack}' if lag > 0 else 'up to date'})"
