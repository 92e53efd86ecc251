"""Pictures: panels, lines and bars that look alike."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

WIDTH: Final = 9.0  # inches
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
STYLES: Final = ("-", "--", ":", "-.")
MARKERS: Final = "osD^vPX*"
MOVES: Final = "state moves"
SPANS: Final = {MOVES: "#f0c987", "executor killed": "#e8a9a0"}
OTHER_SPANS: Final = "#cfc0e6"
STEPS: Final = ((1,), (1, 2, 5))  # numbers of an axis within a power of ten
SPACE: Final = {"x": 0.7, "y": 0.25}  # inches from one number of an axis to the next

Series = Mapping[str, Sequence[tuple[float, float]]]
Middle = tuple[float, float, float]
"""A median, and the least and the greatest."""


def plain(value: float) -> str:
    return f"{value:,.9g}"


def curves(
    series: Series,
    x: str,
    y: str,
    *,
    log: str = "xy",
    moved: Sequence[tuple[float, float]] = (),
) -> Figure:
    """Lines through points, by name; with the times at which state has `moved`."""
    figure, (panel,) = panels_of([3.4])
    looks = looks_of(series)
    for first, last in moved:
        panel.axvspan(first, last, color=SPANS[MOVES], lw=0, label=MOVES)
    for name, points in series.items():
        xs, ys = zip(*points, strict=True)
        panel.plot(xs, ys, marker="o", ms=4, **looks[name])
    everything = np.array([point for points in series.values() for point in points]).T
    for name, values in zip("xy", everything, strict=True):
        if name in log:
            logarithmic(panel, name, *extent([values]))
    if "y" not in log:
        panel.set_ylim(bottom=0)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    add_legend(figure)
    return figure


def bars(values: Mapping[str, Mapping[str, Middle]], x: str, ours: str) -> Figure:
    """A panel for each question, with a bar a name, its value and range; ours in another colour."""
    figure, panels = panels_of([0.55 + 0.25 * len(named) for named in values.values()])
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
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
        panel.grid(visible=False, axis="y")
        panel.invert_yaxis()
    panels[-1].set_xlabel(x)
    return figure


def stacked(bars: Mapping[str, Mapping[str, float]]) -> Figure:
    """One bar a name, of parts in seconds one after the other, with their sum."""
    figure, (panel,) = panels_of([0.8 + 0.28 * len(bars)])
    ends = dict.fromkeys(bars, 0.0)
    for number, part in enumerate(dict.fromkeys(part for parts in bars.values() for part in parts)):
        values = [parts.get(part, 0.0) for parts in bars.values()]
        panel.barh(
            list(bars), values, left=list(ends.values()), color=colour_of(number), label=part
        )
        ends = {name: end + value for (name, end), value in zip(ends.items(), values, strict=True)}
    for number, end in enumerate(ends.values()):
        panel.text(end, number, f" {end:.2f}", va="center", fontsize=8)
    panel.margins(x=0.08)
    panel.invert_yaxis()
    panel.set_xlabel("seconds")
    panel.legend(fontsize=8, frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def logarithmic(
    panel: Axes, name: str, least: float, greatest: float, tell: Callable[[float], str] = plain
) -> None:
    """An axis x or y with room on both sides, and with numbers as people write them."""
    first, last = 0.7 * least, 1.3 * greatest
    getattr(panel, f"set_{name}scale")("log")
    getattr(panel, f"set_{name}lim")(first, last)
    figure: Any = panel.get_figure()
    side = "xy".index(name)
    inches = float(figure.get_size_inches()[side] * panel.get_position().size[side])
    axis = getattr(panel, f"{name}axis")
    axis.set_major_locator(FixedLocator(ticks(first, last, inches / SPACE[name])))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tell(value)))
    axis.set_minor_locator(NullLocator())


def ticks(first: float, last: float, most: float) -> list[float]:
    """Round numbers for a logarithmic axis with room for so many at equal distances.

    None comes nearer to another one than that room allows.

    >>> ticks(0.7, 1300, 4), ticks(0.7, 1300, 20)
    ([1.0, 10.0, 100.0, 1000.0], [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
    >>> ticks(71, 132, 5)
    [80.0, 100.0, 120.0]
    """
    powers = 10.0 ** np.arange(np.floor(np.log10(first)), np.ceil(np.log10(last)))
    choices = [np.outer(powers, steps).ravel() for steps in STEPS]
    linear = MaxNLocator(max(2, int(most)), steps=[1, 2, 5, 10])
    choices.append(np.array(linear.tick_values(first, last)))
    shown: list[float] = []
    for numbers in choices:
        inside = numbers[(numbers >= first) & (numbers <= last)]
        apart = np.diff(np.log(inside)) / np.log(last / first)
        if len(inside) > len(shown) and (apart >= 1 / (most + 1)).all():
            shown = inside.tolist()
    return shown or [float(f"{np.sqrt(first * last):.2g}")]


def extent(some: Iterable[npt.ArrayLike]) -> tuple[float, float]:
    """The least and the greatest of all numbers above zero."""
    values = np.concatenate([np.asarray(one, np.float64) for one in some] or [np.ones(1)])
    values = values[values > 0] if (values > 0).any() else np.ones(1)
    return float(values.min()), float(values.max())


def looks_of(names: Iterable[str], group: Callable[[str], str] = str) -> dict[str, dict[str, Any]]:
    """How lines look: a colour and a style for each group, which has one entry in the legend."""
    groups: list[str] = []
    looks: dict[str, dict[str, Any]] = {}
    for name in names:
        is_new = group(name) not in groups
        groups += [group(name)] if is_new else []
        number = groups.index(group(name))
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        label = group(name) if is_new else None
        looks[name] = {"color": colour_of(number), "ls": style, "lw": 1.3, "label": label}
    return looks


def add_legend(figure: Figure, handles: Sequence[Line2D] | None = None) -> None:
    """Beside the panels, where it hides nothing; one line needs none."""
    labels = handles or figure.axes[0].get_legend_handles_labels()[1]
    if len(labels) < 2:
        return
    given: Any = {} if handles is None else {"handles": handles}
    figure.legend(fontsize=8, frameon=False, loc="outside right upper", **given)


def panels_of(heights: Sequence[float]) -> tuple[Figure, Sequence[Axes]]:
    """One below the other."""
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.4), layout="constrained")
    panels: Any = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
    for panel in panels:
        panel.grid(color="#e5e5e5", lw=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def colour_of(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
