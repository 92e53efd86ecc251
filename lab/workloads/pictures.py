"""Pictures of runs: latencies over time, their distribution, memory, and what migrations cost."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from lab.tools import plots, units
from lab.workloads.rate import SECOND
from lab.workloads.report import SLOT, Disturbance, LatencyTimeline, ObservedMigration, RunReport

FEW: Final = 10  # points of a line, each of which is marked
SLOWEST: Final[Any] = {"color": plots.COLOURS[1], "lw": 3, "solid_capstyle": "butt"}
MEDIAN: Final[Any] = {"color": plots.COLOURS[0], "lw": 1}  # in front: the other shows behind it


def timelines(reports: Mapping[str, RunReport]) -> Figure:
    """The latency of events by the time at which they took place, one panel a run.

    A run that is much longer than most has axes of its own. A rate that varies is drawn as well.
    """
    figure, panels = plots.panels_of([3.4] if len(reports) == 1 else [1.7] * len(reports))
    lines = {name: report.timeline() for name, report in reports.items()}
    usual = 1.5 * float(np.median([line.begin[-1] for line in lines.values()]))
    told: dict[str, str] = {}
    for (name, report), panel in zip(reports.items(), panels, strict=True):
        is_long = lines[name].begin[-1] > usual
        alike = [other for other in lines if (lines[other].begin[-1] > usual) == is_long]
        last = max(_last(lines[other], reports[other]) for other in alike)
        for one in report.migrations:
            told[_kind(one)] = plots.SPANS.get(_kind(one), plots.OTHER_SPANS)
            ended = last if one.ended is None else one.ended
            panel.axvspan(one.asked, max(ended, one.asked + 0.1), color=told[_kind(one)], lw=0)
        panel.axvspan(0, report.warm_up, color="#eeeeee", lw=0)
        dots: Any = {"marker": "o" if len(lines[name].begin) < FEW else "", "ms": 3}
        panel.plot(lines[name].begin, lines[name].greatest, **SLOWEST, **dots)
        panel.plot(lines[name].begin, lines[name].median, **MEDIAN, **dots)
        if len(reports) > 1:
            panel.set_title(name, loc="left", fontsize=9)
        panel.set_ylabel("latency")
        panel.set_xlim(0, last)
        shown = [some for one in alike for some in (lines[one].median, lines[one].greatest)]
        plots.logarithmic(panel, "y", *plots.extent(shown), units.moment)
        if len(report.rate.stretches) > 1:
            _offered(panel, report, lines[name])
    for panel, below in pairwise(panels):
        panel.tick_params(labelbottom=panel.get_xlim() != below.get_xlim())
    handles: list[Any] = [Line2D([], [], label="slowest", **SLOWEST)]
    handles += [Line2D([], [], label="median", **MEDIAN)]
    handles += [Patch(color=colour, label=kind) for kind, colour in told.items()]
    figure.legend(handles=handles, ncols=5, fontsize=8, loc="outside upper right", frameon=False)
    panels[-1].set_xlabel("when the event took place, seconds since the start (grey: warm-up)")
    return figure


def ccdfs(
    reports: Mapping[str, RunReport],
    kind: str = "moving",
    group: Callable[[str], str] = str,
) -> Figure:
    """The share of events that took longer than so many seconds; runs of a group look alike."""
    figure, (panel,) = plots.panels_of([3.4])
    found = {name: report.histograms() for name, report in reports.items()}
    ccdfs = {name: np.array(one[kind].ccdf()).T for name, one in found.items() if kind in one}
    looks = plots.looks_of(ccdfs, group)
    for name, (ends, shares) in ccdfs.items():
        panel.step(ends / SECOND, shares, **looks[name])
    shown = plots.extent(ends / SECOND for ends, _ in ccdfs.values())
    plots.logarithmic(panel, "x", *shown, units.moment)
    panel.set_yscale("log")
    panel.set_ylim(1e-5, 1.1)
    panel.set_xlabel("latency")
    panel.set_ylabel("share of events above")
    plots.add_legend(figure)
    return figure


def memories(reports: Mapping[str, RunReport], group: Callable[[str], str] = str) -> Figure:
    """The memory of all processes over time, one line a run, with the migrations as bars below."""
    greatest = max(mib for report in reports.values() for _, mib in report.memory)
    factor, unit = (1024, "GiB") if greatest >= 2048 else (1, "MiB")
    figure, (panel,) = plots.panels_of([3.4])
    looks = plots.looks_of(reports, group)
    for number, (name, report) in enumerate(reports.items()):
        at, mib = np.array(report.memory).T
        panel.plot(at, mib / factor, **looks[name])
        for one in report.migrations:
            ended = at[-1] if one.ended is None else one.ended
            below: Any = {"lw": 3, "transform": panel.get_xaxis_transform()}
            height = 0.01 + 0.012 * number
            panel.plot([one.asked, ended], [height, height], color=looks[name]["color"], **below)
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("seconds since the start (bars: state moves)")
    panel.set_ylabel(f"memory (PSS), {unit}")
    plots.add_legend(figure)
    return figure


def dots(reports: Mapping[str, RunReport]) -> int:
    """How many dots `tradeoff` shows, one beside the other."""
    places = {(one.duration, one.greatest) for some in _ended(reports).values() for one in some}
    return len(places)


def tradeoff(
    reports: Mapping[str, RunReport], kind: Callable[[str], str] = str, *, by_size: bool = False
) -> Figure:
    """Greatest latency against duration of each migration that ended: a colour for each kind of
    strategy and a marker for each run, or greater ones for later runs if told `by_size`."""
    figure, (panel,) = plots.panels_of([3.4])
    ended = _ended(reports)
    kinds = list(dict.fromkeys(kind(one.strategy) for some in ended.values() for one in some))
    handles = [
        Line2D([], [], color=plots.colour_of(n), lw=4, label=name) for n, name in enumerate(kinds)
    ]
    for number, (name, migrations) in enumerate(ended.items()):
        look: Any = {
            "marker": plots.MARKERS[number % len(plots.MARKERS)],
            "ms": 6,
            "ls": "",
            "mec": "white",
        }
        if by_size:
            look |= {"marker": "o", "ms": 5 + 3 * number}
        for one in migrations:
            colour = plots.colour_of(kinds.index(kind(one.strategy)))
            panel.plot([one.duration or 0.0], [one.greatest], color=colour, **look)
        handles.append(Line2D([], [], color="#888888", label=name, **look))
    shown = [one for some in ended.values() for one in some]
    durations = plots.extent([[one.duration or 0.0 for one in shown]])
    plots.logarithmic(panel, "x", *durations, units.moment)
    slowest = plots.extent([[one.greatest for one in shown]])
    plots.logarithmic(panel, "y", *slowest, units.moment)
    panel.set_xlabel("duration")
    panel.set_ylabel("slowest event")
    plots.add_legend(figure, handles)
    return figure


def _ended(reports: Mapping[str, RunReport]) -> dict[str, list[Disturbance]]:
    return {
        name: [one for one in report.disturbances() if one.duration and one.outcome == "done"]
        for name, report in reports.items()
    }


def _kind(migration: ObservedMigration) -> str:
    """What happens to the query."""
    if migration.strategy.startswith("executor"):
        return migration.strategy
    return "no query runs" if migration.strategy == "restart" else plots.MOVES


def _last(line: LatencyTimeline, report: RunReport) -> float:
    """When the last event of a run took place, or the last migration ended."""
    ends = [one.ended for one in report.migrations if one.ended is not None]
    return max([float(line.begin[-1]) + SLOT / SECOND, *ends])


def _offered(panel: Axes, report: RunReport, line: LatencyTimeline) -> None:
    """The rate at which the events of a run take place."""
    seconds = np.arange(0, int(line.begin[-1]) + 1)
    until = np.array([report.rate.until(int(second * SECOND)) for second in seconds])
    right = panel.twinx()
    right.step(seconds[:-1], np.diff(until), color="#999999", lw=1, where="post")
    right.set_ylim(0, 1.1 * float(np.diff(until).max()))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    right.set_ylabel("offered, events/s", color="#777777", fontsize=8)
    right.spines["top"].set_visible(False)
