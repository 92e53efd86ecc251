"""How long does it take to plan? By planner, number of bins and numbers of workers.

Loads and sizes are log-normal; the current routing has intervals of equal length. What a plan
moves is told next to its time, and for `scattered` the gap to what no plan can do without.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.cli.output import note
from godwit.migration.strategies import in_turn
from godwit.model.routing import Routing
from godwit.planner import intervals_of, scattered, sequence, single_step, transfers
from lab.bench.application import Bench
from lab.bench.results import BenchResults, show, spread
from lab.tools.tables import show_table

TAU = 0.2
SEED = 1
TURNS = 20
BANDWIDTH = 1.0


def run(bench: Bench) -> None:
    report = BenchResults("planner", bench, {"tau": TAU, "seed": SEED, "turns": TURNS})
    turns = bench.pick(TURNS, 3)
    lines = []
    for name, bins, current, workers, plan in _cases(bench):
        routing, load, size = _problem(bins, current)
        found = plan(routing, workers, load, size)
        seconds, cpu = [], []
        for _ in range(turns):
            began, worked = time.perf_counter(), time.process_time()
            plan(routing, workers, load, size)
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time() - worked)
        case = {"planner": name, "bins": bins, "from": current, "to": workers}
        report.add(case, seconds=spread(seconds), cpu_seconds=spread(cpu), **found)
        note(f"  {name}, {bins:,} bins, {current} -> {workers}")
        times = [show(spread([one * 1000 for one in some])) for some in (seconds, cpu)]
        told = ", ".join(f"{key} {value:.3g}" for key, value in found.items())
        lines.append([name, bins, f"{current} -> {workers}", *times, told])
    show_table(["planner", "bins", "workers", "ms", "ms of processor", "found"], lines)


Found = dict[str, float]
Plan = Callable[[Routing, int, Any, Any], Found]


def _cases(bench: Bench) -> list[tuple[str, int, int, int, Plan]]:
    many = bench.pick(65_536, 4096)
    return [
        ("single_step", 64, 8, 10, _single_step),
        ("single_step", 64, 16, 16, _single_step),
        ("single_step", 64, 16, 12, _single_step),
        ("single_step", 4096, 64, 64, _single_step),
        ("single_step", 4096, 64, 80, _single_step),
        ("single_step", 4096, 64, 48, _single_step),
        ("scattered", 64, 8, 8, _scattered),
        ("scattered", many, 64, 64, _scattered),
        ("scattered", many, 64, 80, _scattered),
        ("scattered", many, 64, 48, _scattered),
        ("sequence", 16, 3, 4, _sequence),
        ("transfers", 4096, 16, 20, _transfers),
        ("transfers", many, 64, 80, _transfers),
        ("batched", 4096, 16, 20, _batched),
        ("batched", many, 64, 80, _batched),
    ]


def _problem(bins: int, workers: int) -> tuple[Routing, Any, Any]:
    rng = np.random.default_rng(SEED)
    # Few bins are less unequal, or else none of the plans could keep the balance.
    skew = 0.2 if bins <= 64 else 0.5
    load, size = rng.lognormal(0, skew, bins), rng.lognormal(0, 1, bins)
    return Routing.even(bins, workers), load, size


def _single_step(routing: Routing, workers: int, load: Any, size: Any) -> Found:
    found = single_step(intervals_of(routing), workers, load, size, TAU)
    return {"moved": found.cost / size.sum()}


def _scattered(routing: Routing, workers: int, load: Any, size: Any) -> Found:
    found = scattered(routing.owners, workers, load, size, TAU)
    return {"moved": found.cost / size.sum(), "gap": found.gap}


def _sequence(routing: Routing, workers: int, load: Any, size: Any) -> Found:
    series = [workers, routing.workers, workers]
    found = sequence(intervals_of(routing), series, load, size, TAU)
    return {"moved": sum(one.cost for one in found) / size.sum()}


def _transfers(routing: Routing, workers: int, load: Any, size: Any) -> Found:
    target = routing.spread(workers)
    found = transfers(routing.owners, target.owners, size, BANDWIDTH)
    return {"phases": len(found.phases), "seconds_to_bound": found.seconds / found.bound}


def _batched(routing: Routing, workers: int, load: Any, size: Any) -> Found:
    """Eight steps, each as long as the destination that reads most in it, beside the least that the
    busiest destination needs; and the same with bins in the order of their numbers."""
    target = routing.spread(workers)
    bins = in_turn(routing, target)
    bound = np.bincount(target.owners[bins], size[bins]).max()

    def seconds(order: Any) -> float:
        parts = np.array_split(order, 8)
        return float(sum(np.bincount(target.owners[p], size[p]).max() for p in parts))

    return {
        "seconds_to_bound": seconds(bins) / bound,
        "by_number_to_bound": seconds(np.sort(bins)) / bound,
    }
