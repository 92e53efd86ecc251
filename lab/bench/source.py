"""How many events a second does the source `nexmark` give, with nothing behind it?

A batch of its events is read into Spark's `noop` sink, by as many tasks as there are cores. Each
turn is a job of its own, whose start counts; one before them warms up. Processor seconds are those
of all processes, which tell how much of the time went to others.
"""

import time

from godwit.cli.output import note
from lab.bench.application import WORKERS, Bench
from lab.bench.results import BenchResults, show, spread
from lab.tools.processes import processor_seconds
from lab.tools.spark_query import read_all
from lab.tools.tables import show_table
from lab.workloads.source import register


def run(bench: Bench) -> None:
    events = bench.pick(4_000_000, 100_000)
    report = BenchResults("source", bench, {"cores": WORKERS})
    register(bench.spark)
    _read(bench, events)
    rates, processor = [], []
    for turn in range(bench.repetitions):
        seconds, used = _read(bench, events)
        rates.append(events / seconds)
        processor.append(events / used)
        note(f"    {turn + 1}/{bench.repetitions}: {rates[-1]:,.0f} events/s")
    found, busy = spread(rates), spread(processor)
    report.add({"events": events}, events_per_second=found, events_per_processor_second=busy)
    shown = [show(one, "{:,.0f}") for one in (found, busy)]
    show_table(["events", "events/s", "events/processor s"], [[events, *shown]])


def _read(bench: Bench, events: int) -> tuple[float, float]:
    """The seconds that it takes, and those of processors."""
    source = bench.spark.read.format("nexmark").options(events=events, partitions=WORKERS)
    began, used = time.monotonic(), processor_seconds()
    read_all(source.load())
    return time.monotonic() - began, processor_seconds() - used
