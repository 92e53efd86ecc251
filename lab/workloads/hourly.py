"""How many nodes a stream needs hour by hour, for two months: what planners are tried with.

Ding et al. took the numbers from 28 million tweets of October and November 2011, which are not
public. `hourly.json` beside this file takes their place: it follows the hours of the day and the
days of the week, wanders, and has bursts of some hours. The first month is to learn from.
"""

import json
from pathlib import Path

import numpy as np

from godwit.planner.chain import nodes_for

FILE = Path(__file__).with_name("hourly.json")
SEED = 2015
DAYS = 61
LEAST, MOST = 8, 16


def hourly_nodes() -> list[list[int]]:
    """The stored series: a list of 24 numbers of nodes for each day.

    >>> days = hourly_nodes()
    >>> len(days), min(map(min, days)), max(map(max, days))
    (61, 8, 16)
    """
    days: list[list[int]] = json.loads(FILE.read_text())["nodes"]
    return days


def generate(seed: int = SEED) -> list[list[int]]:
    """The series of a seed; the stored one is that of `SEED`."""
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * DAYS)
    day = 1 + 0.3 * np.sin(2 * np.pi * (hours - 9) / 24) + 0.1 * np.sin(4 * np.pi * hours / 24)
    week = np.where(hours // 24 % 7 < 5, 1.0, 0.8)
    wander = np.zeros(len(hours))
    for hour in hours[1:]:
        wander[hour] = 0.8 * wander[hour - 1] + 0.05 * rng.standard_normal()
    burst = np.ones(len(hours))
    for begin in np.flatnonzero(rng.random(len(hours)) < 1 / 60):
        length = int(rng.integers(1, 6))
        burst[begin : begin + length] += rng.uniform(0.2, 0.8)
    load = day * week * np.exp(wander) * burst
    low, high = np.quantile(load, [0.02, 0.98])
    share = np.clip((load - low) / (high - low), 0, 1)
    # The lightest hour needs the least nodes, the heaviest the most.
    counts = nodes_for(LEAST - 0.5 + (MOST - LEAST + 0.5) * share, 1.0, LEAST, MOST)
    return np.array(counts).reshape(DAYS, 24).tolist()


def save() -> None:
    """Write the series of `SEED`, one line a day."""
    rows = ",\n".join(f"    {json.dumps(day)}" for day in generate())
    FILE.write_text(f'{{\n  "seed": {SEED},\n  "nodes": [\n{rows}\n  ]\n}}\n')
