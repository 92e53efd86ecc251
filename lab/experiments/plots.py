"""Pictures of runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lab.workloads.rate import SECOND
from lab.workloads.report import SLOT, Migration, Report, Timeline

WIDTH: Final = 9.0  # inches
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
STYLES: Final = ("-", "--", ":", "-.")
MARKERS: Final = "osD^vPX*"
MOVES: Final = "state moves"
SPANS: Final = {MOVES: "#f0c987", "executor killed": "#e8a9a0"}
OTHER_SPANS: Final = "#cfc0e6"
# Numbers on a logarithmic axis within a power of ten: the first of these that has enough of them.
STEPS: Final = ((1,), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 5, 7), np.arange(1, 10, 0.2))
ENOUGH: Final = 4

Series = Mapping[str, Sequence[tuple[float, float]]]
Middle = tuple[float, float, float]
"""A median, and the least and the greatest."""


def timelines(reports: Mapping[str, Report]) -> Figure:
    """The latency of events by the time at which they took place, one panel a run.

    A run that is much longer than most has axes of its own. A rate that varies is drawn as well.
    """
    figure, panels = _panels([1.7] * len(reports))
    lines = {name: report.timeline() for name, report in reports.items()}
    usual = 1.5 * float(np.median([line.begin[-1] for line in lines.values()]))
    told: dict[str, str] = {}
    for (name, report), panel in zip(reports.items(), panels, strict=True):
        is_long = lines[name].begin[-1] > usual
        alike = [other for other in lines if (lines[other].begin[-1] > usual) == is_long]
        last = max(_last(lines[other], reports[other]) for other in alike)
        for one in report.migrations:
            told[_kind(one)] = SPANS.get(_kind(one), OTHER_SPANS)
            ended = last if one.ended is None else one.ended
            panel.axvspan(one.asked, max(ended, one.asked + 0.1), color=told[_kind(one)], lw=0)
        panel.axvspan(0, report.warm_up, color="#eeeeee", lw=0)
        panel.plot(lines[name].begin, lines[name].greatest, color=COLOURS[1], lw=1)
        panel.plot(lines[name].begin, lines[name].median, color=COLOURS[0], lw=1)
        panel.set_title(name, loc="left", fontsize=9)
        panel.set_ylabel("latency, s")
        panel.set_xlim(0, last)
        shown = [some for one in alike for some in (lines[one].median, lines[one].greatest)]
        _logarithmic(panel, "y", *_extent(shown))
        if len(report.rate.stretches) > 1:
            _offered(panel, report, lines[name])
    for panel, below in pairwise(panels):
        panel.tick_params(labelbottom=panel.get_xlim() != below.get_xlim())
    handles: list[Any] = [Line2D([], [], color=COLOURS[1], label="greatest")]
    handles += [Line2D([], [], color=COLOURS[0], label="median")]
    handles += [Patch(color=colour, label=kind) for kind, colour in told.items()]
    figure.legend(handles=handles, ncols=5, fontsize=8, loc="outside upper right", frameon=False)
    panels[-1].set_xlabel("when the event took place, seconds after the begin (grey: warm-up)")
    return figure


def ccdfs(
    reports: Mapping[str, Report],
    kind: str = "moving",
    group: Callable[[str], str] = str,
) -> Figure:
    """The share of events that took longer than so many seconds; runs of a group look alike."""
    figure, (panel,) = _panels([3.4])
    found = {name: report.histograms() for name, report in reports.items()}
    ccdfs = {name: np.array(one[kind].ccdf()).T for name, one in found.items() if kind in one}
    looks = _looks(ccdfs, group)
    for name, (ends, shares) in ccdfs.items():
        panel.step(ends / SECOND, shares, **looks[name])
    _logarithmic(panel, "x", *_extent(ends / SECOND for ends, _ in ccdfs.values()))
    panel.set_yscale("log")
    panel.set_ylim(1e-5, 1.1)
    panel.set_xlabel("latency, s")
    panel.set_ylabel("share of events above")
    _legend(figure)
    return figure


def memories(reports: Mapping[str, Report], group: Callable[[str], str] = str) -> Figure:
    """The memory of all processes over time, one line a run, with the migrations as bars below."""
    figure, (panel,) = _panels([3.4])
    looks = _looks(reports, group)
    for number, (name, report) in enumerate(reports.items()):
        at, mib = np.array(report.memory).T
        panel.plot(at, mib, **looks[name])
        for one in report.migrations:
            ended = at[-1] if one.ended is None else one.ended
            below: Any = {"lw": 3, "transform": panel.get_xaxis_transform()}
            height = 0.01 + 0.012 * number
            panel.plot([one.asked, ended], [height, height], color=looks[name]["color"], **below)
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("seconds after the begin (bars: state moves)")
    panel.set_ylabel("memory (PSS), MiB")
    _legend(figure)
    return figure


def tradeoff(
    reports: Mapping[str, Report], kind: Callable[[str], str] = str, *, by_size: bool = False
) -> Figure:
    """Greatest latency against duration of each migration that ended: a colour for each kind of
    strategy and a marker for each run, or greater ones for later runs if told `by_size`."""
    figure, (panel,) = _panels([3.4])
    ended = {
        name: [one for one in report.disturbances() if one.duration and one.outcome == "done"]
        for name, report in reports.items()
    }
    kinds = list(dict.fromkeys(kind(one.strategy) for some in ended.values() for one in some))
    handles = [Line2D([], [], color=_colour(n), lw=4, label=name) for n, name in enumerate(kinds)]
    for number, (name, migrations) in enumerate(ended.items()):
        look: Any = {"marker": MARKERS[number % len(MARKERS)], "ms": 6, "ls": "", "mec": "white"}
        if by_size:
            look |= {"marker": "o", "ms": 5 + 3 * number}
        for one in migrations:
            colour = _colour(kinds.index(kind(one.strategy)))
            panel.plot([one.duration or 0.0], [one.greatest], color=colour, **look)
        handles.append(Line2D([], [], color="#888888", label=name, **look))
    shown = [one for some in ended.values() for one in some]
    _logarithmic(panel, "x", *_extent([[one.duration or 0.0 for one in shown]]))
    _logarithmic(panel, "y", *_extent([[one.greatest for one in shown]]))
    panel.set_xlabel("duration, s")
    panel.set_ylabel("greatest latency, s")
    _legend(figure, handles)
    return figure


def curves(
    series: Series,
    x: str,
    y: str,
    *,
    log: str = "xy",
    moved: Sequence[tuple[float, float]] = (),
) -> Figure:
    """Lines through points, by name; with the times at which state has `moved`."""
    figure, (panel,) = _panels([3.4])
    looks = _looks(series)
    for first, last in moved:
        panel.axvspan(first, last, color=SPANS[MOVES], lw=0, label=MOVES)
    for name, points in series.items():
        xs, ys = zip(*points, strict=True)
        panel.plot(xs, ys, marker="o", ms=4, **looks[name])
    everything = np.array([point for points in series.values() for point in points]).T
    for name, values in zip("xy", everything, strict=True):
        if name in log:
            _logarithmic(panel, name, *_extent([values]))
    if "y" not in log:
        panel.set_ylim(bottom=0)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    _legend(figure)
    return figure


def bars(values: Mapping[str, Mapping[str, Middle]], x: str, ours: str) -> Figure:
    """A panel for each question, with a bar a name, its value and range; ours in another colour."""
    figure, panels = _panels([0.55 + 0.25 * len(named) for named in values.values()])
    for (question, named), panel in zip(values.items(), panels, strict=True):
        middle, least, greatest = np.array(list(named.values())).T
        colours = [COLOURS[0] if ours in name else "#999999" for name in named]
        panel.barh(list(named), middle, color=colours, height=0.7)
        ranges = [middle - least, greatest - middle]
        panel.errorbar(
            middle, list(named), xerr=ranges, fmt="none", ecolor="black", capsize=3, lw=1
        )
        for number, end in enumerate(greatest):
            panel.text(end, number, f"  {middle[number]:,.0f}", va="center", fontsize=8)
        panel.set_title(question, loc="left", fontsize=9)
        panel.set_xlim(0, 1.15 * max(greatest))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
        panel.grid(visible=False, axis="y")
        panel.invert_yaxis()
    panels[-1].set_xlabel(x)
    return figure


def stacked(bars: Mapping[str, Mapping[str, float]]) -> Figure:
    """One bar a name, of parts in seconds one after the other, with their sum."""
    figure, (panel,) = _panels([0.8 + 0.28 * len(bars)])
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


def _kind(migration: Migration) -> str:
    """What happens to the query."""
    if migration.strategy.startswith("executor"):
        return migration.strategy
    return "no query runs" if migration.strategy == "restart" else MOVES


def _last(line: Timeline, report: Report) -> float:
    """When the last event of a run took place, or the last migration ended."""
    ends = [one.ended for one in report.migrations if one.ended is not None]
    return max([float(line.begin[-1]) + SLOT / SECOND, *ends])


def _offered(panel: Axes, report: Report, line: Timeline) -> None:
    """The rate at which the events of a run take place."""
    seconds = np.arange(0, int(line.begin[-1]) + 1)
    until = np.array([report.rate.until(int(second * SECOND)) for second in seconds])
    right = panel.twinx()
    right.step(seconds[:-1], np.diff(until), color="#999999", lw=1, where="post")
    right.set_ylim(0, 1.1 * float(np.diff(until).max()))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    right.set_ylabel("offered, events/s", color="#777777", fontsize=8)
    right.spines["top"].set_visible(False)


def _logarithmic(panel: Axes, name: str, least: float, greatest: float) -> None:
    """An axis x or y with room on both sides, and with numbers as people write them."""
    first, last = 0.7 * least, 1.3 * greatest
    getattr(panel, f"set_{name}scale")("log")
    getattr(panel, f"set_{name}lim")(first, last)
    powers = 10.0 ** np.arange(np.floor(np.log10(first)), np.ceil(np.log10(last)))
    for steps in STEPS:
        numbers = np.outer(powers, steps).ravel()
        numbers = numbers[(numbers >= first) & (numbers <= last)]
        if len(numbers) >= ENOUGH:
            break
    axis = getattr(panel, f"{name}axis")
    axis.set_major_locator(FixedLocator(numbers.tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    axis.set_minor_locator(NullLocator())


def _extent(some: Iterable[npt.ArrayLike]) -> tuple[float, float]:
    """The least and the greatest of all numbers above zero."""
    values = np.concatenate([np.asarray(one, np.float64) for one in some] or [np.ones(1)])
    values = values[values > 0] if (values > 0).any() else np.ones(1)
    return float(values.min()), float(values.max())


def _looks(names: Iterable[str], group: Callable[[str], str] = str) -> dict[str, dict[str, Any]]:
    """How lines look: a colour and a style for each group, which has one entry in the legend."""
    groups: list[str] = []
    looks: dict[str, dict[str, Any]] = {}
    for name in names:
        is_new = group(name) not in groups
        groups += [group(name)] if is_new else []
        number = groups.index(group(name))
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        label = group(name) if is_new else None
        looks[name] = {"color": _colour(number), "ls": style, "lw": 1.3, "label": label}
    return looks


def _legend(figure: Figure, handles: Sequence[Line2D] | None = None) -> None:
    """Beside the panels, where it hides nothing."""
    given: Any = {} if handles is None else {"handles": handles}
    figure.legend(fontsize=8, frameon=False, loc="outside right upper", **given)


def _panels(heights: Sequence[float]) -> tuple[Figure, Sequence[Axes]]:
    """One below the other."""
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    panels: Any = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
    for panel in panels:
        panel.grid(color="#e5e5e5", lw=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
