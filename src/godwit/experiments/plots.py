"""Pictures of runs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from godwit.workloads.rate import SECOND
from godwit.workloads.report import Report

WIDTH: Final = 9.0  # inches
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
MOVING: Final = "#f0c987"
MANY: Final = 5000  # times the least that an axis has: labels at powers of ten alone have room

Series = Mapping[str, Sequence[tuple[float, float]]]


def timelines(reports: Mapping[str, Report]) -> Figure:
    """The latency of events by the time at which they took place, one panel a run."""
    figure, panels = _panels(len(reports), height=1.7)
    highest = max(report.timeline().greatest.max() for report in reports.values())
    for (name, report), panel in zip(reports.items(), panels, strict=True):
        line = report.timeline()
        for one in report.migrations:
            ended = line.begin[-1] if one.ended is None else one.ended
            panel.axvspan(one.asked, max(ended, one.asked + 0.1), color=MOVING, lw=0)
        panel.axvspan(0, report.warm_up, color="#eeeeee", lw=0)
        greatest = panel.plot(line.begin, line.greatest, color=COLOURS[1], lw=1, label="greatest")
        median = panel.plot(line.begin, line.median, color=COLOURS[0], lw=1, label="median")
        panel.set_title(name, loc="left", fontsize=9)
        _logarithmic(panel, "y")
        panel.set_ylim(0.1, max(2.0, 1.3 * highest))
        panel.set_ylabel("latency, s")
    moves = Patch(color=MOVING, label="state moves")
    handles = [*greatest, *median, moves]
    panels[0].legend(handles=handles, ncols=3, fontsize=8, loc="upper right", frameon=False)
    panels[-1].set_xlabel("when the event took place, seconds after the begin (grey: warm-up)")
    return figure


def ccdfs(reports: Mapping[str, Report], kinds: Sequence[str] = ("moving",)) -> Figure:
    """The share of events that took longer than so many seconds."""
    figure, (panel,) = _panels(1, height=3.4)
    for number, (name, report) in enumerate(reports.items()):
        histograms = report.histograms()
        for kind, style in zip(kinds, ("-", "--", ":"), strict=False):
            if kind in histograms:
                ends, shares = np.array(histograms[kind].ccdf()).T
                label = name if len(kinds) == 1 else f"{name}, {kind}"
                panel.step(ends / SECOND, shares, style, color=_colour(number), lw=1.3, label=label)
    _logarithmic(panel, "x")
    panel.set_yscale("log")
    panel.set_ylim(1e-5, 1.1)
    panel.set_xlabel("latency, s")
    panel.set_ylabel("share of events above")
    panel.legend(fontsize=8, frameon=False)
    return figure


def memories(reports: Mapping[str, Report]) -> Figure:
    """The memory of all processes over time, one line a run, with the migrations as bars below."""
    figure, (panel,) = _panels(1, height=3.4)
    for number, (name, report) in enumerate(reports.items()):
        at, mib = np.array(report.memory).T
        panel.plot(at, mib, color=_colour(number), lw=1.3, label=name)
        for one in report.migrations:
            ended = at[-1] if one.ended is None else one.ended
            panel.plot([one.asked, ended], [0.02 - 0.01 * number] * 2, color=_colour(number),
                       lw=4, transform=panel.get_xaxis_transform(), clip_on=False)  # fmt: skip
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("seconds after the begin (bars: state moves)")
    panel.set_ylabel("memory (PSS), MiB")
    panel.legend(fontsize=8, frameon=False)
    return figure


def curves(
    series: Series, x: str, y: str, *, log: str = "xy", labels: Sequence[str] = ()
) -> Figure:
    """Lines through points, by name; with `labels` of the points of each line."""
    figure, (panel,) = _panels(1, height=3.4)
    for number, (name, points) in enumerate(series.items()):
        xs, ys = zip(*points, strict=True)
        panel.plot(xs, ys, "o-", color=_colour(number), ms=4, lw=1.2, label=name)
        for point, label in zip(points, labels, strict=False):
            if np.isfinite(point).all():
                panel.annotate(label, point, (4, 4), textcoords="offset points", fontsize=7)
    for name in log:
        _logarithmic(panel, name)
    if "y" not in log:
        panel.set_ylim(bottom=0)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.legend(fontsize=8, frameon=False)
    return figure


def bars(values: Mapping[str, float], x: str, ours: str) -> Figure:
    """One bar a name, on a logarithmic scale, with its value; in another colour if it is ours."""
    figure, (panel,) = _panels(1, height=0.5 + 0.32 * len(values))
    colours = [COLOURS[0] if ours in name else "#999999" for name in values]
    panel.barh(list(values), list(values.values()), color=colours)
    for number, value in enumerate(values.values()):
        panel.text(value, number, f" {value:,.0f}", va="center", fontsize=8)
    panel.set_xscale("log")
    panel.margins(x=0.15)
    panel.invert_yaxis()
    panel.set_xlabel(x)
    return figure


def stacked(bars: Mapping[str, Mapping[str, float]]) -> Figure:
    """One bar a name, of parts in seconds one after the other, with their sum."""
    figure, (panel,) = _panels(1, height=0.8 + 0.28 * len(bars))
    ends = dict.fromkeys(bars, 0.0)
    for number, part in enumerate(dict.fromkeys(part for parts in bars.values() for part in parts)):
        values = [parts.get(part, 0.0) for parts in bars.values()]
        panel.barh(list(bars), values, left=list(ends.values()), color=_colour(number), label=part)
        ends = {name: end + value for (name, end), value in zip(ends.items(), values, strict=True)}
    for number, end in enumerate(ends.values()):
        panel.text(end, number, f" {end:.2f}", va="center", fontsize=8)
    panel.margins(x=0.08)
    panel.invert_yaxis()
    panel.set_xlabel("seconds")
    panel.legend(fontsize=8, frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def _logarithmic(panel: Axes, name: str) -> None:
    """The axis x or y of what is drawn already, with numbers as people write them."""
    getattr(panel, f"set_{name}scale")("log")
    axis = getattr(panel, f"{name}axis")
    first, last = axis.get_minpos(), max(axis.get_data_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if last <= MANY * first else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    axis.set_minor_formatter(NullFormatter())


def _panels(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(WIDTH, height * count + 0.4), layout="constrained")
    panels: Any = figure.subplots(count, sharex=True, squeeze=False)[:, 0]
    for panel in panels:
        panel.grid(color="#e5e5e5", lw=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
