"""What there is to see of runs, one beside the other: the sections of a page."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from godwit.cli.output import size
from godwit.model.text import plural
from lab.tools import units
from lab.tools.page import Section
from lab.tools.tables import ResultTable
from lab.workloads import pictures
from lab.workloads.report import PERCENTILES, Disturbance, RunReport

EXCLUDED: Final = (
    "Not measured are the events of the warm-up, and what happens once all events have been "
    "delivered: migrations that are still open end, and windows that are left close. Outputs that "
    "wait for windows to close come with the epoch after that of the record that closes them; of "
    "these queries, the events of the last epoch are not measured either."
)


def overview(
    reports: Mapping[str, RunReport],
    about: str = "",
    *,
    group: Callable[[str], str] = str,
    kind: Callable[[str], str] = str,
    by_size: bool = False,
) -> list[Section]:
    """What there is to see of runs, one beside the other: with runs of a `group` in one colour,
    strategies of a `kind` as well, and runs of growing size as such. There is no picture of what
    was not measured."""
    seen = {label: report for label, report in reports.items() if report.answered()}
    moving = {label: report for label, report in seen.items() if report.migrations}
    text = f"{about} {EXCLUDED}".strip()
    sections = [Section("Latency over time", text, pictures.timelines(seen))] if seen else []
    if moving:
        sections.append(Section("What each migration cost", table=disturbance_table(moving)))
        if any("moving" in report.histograms() for report in moving.values()):
            sections.append(Section("Latency while state moves", figure=pictures.ccdfs(moving)))
        if pictures.dots(moving) > 2:
            tradeoff = pictures.tradeoff(moving, kind, by_size=by_size)
            sections.append(Section("Slowest event against duration", figure=tradeoff))
    elif any(report.histograms() for report in seen.values()):
        sections.append(Section("All latencies", figure=pictures.ccdfs(seen, "all", group)))
    if (latencies := latency_table(reports)).rows:
        sections.append(Section("Latencies", table=latencies))
    return [*sections, *surroundings(reports, group)]


def surroundings(
    reports: Mapping[str, RunReport], group: Callable[[str], str] = str
) -> Iterator[Section]:
    """What runs took, and what they were."""
    if measured := {label: report for label, report in reports.items() if report.memory}:
        yield Section("Memory of all processes", figure=pictures.memories(measured, group))
    names = list(dict.fromkeys(name for report in reports.values() for name in report.about))
    about = {
        label: {**report.about, "rate": report.rate.in_words()} for label, report in reports.items()
    }
    rows = [
        [label, *(_told(about[label].get(name)) for name in names), f"{report.warm_up:g} s"]
        for label, report in reports.items()
    ]
    header = ["", *(name.replace("_", " ") for name in names), "warm-up"]
    yield Section("Configuration", table=ResultTable(header, rows))


def disturbance_table(reports: Mapping[str, RunReport]) -> ResultTable:
    """The three papers' metrics, a row for each migration."""
    header = ["", "operator", "strategy", "outcome", "slowest before", "slowest", "duration"]
    header += ["disruption", "jitter", "state moved", "fetched"]
    rows = [
        [label, one.operator, one.strategy, one.outcome, units.seconds(usual), *_cells(one)]
        for label, report in reports.items()
        for usual in [before(report)]
        for one in report.disturbances()
    ]
    return ResultTable(header, rows)


def before(report: RunReport) -> float | None:
    """The greatest latency before anything moved, in seconds."""
    return float(report.steady().max()) if len(report.steady()) else None


def latency_table(reports: Mapping[str, RunReport]) -> ResultTable:
    """Percentiles by kind of events: with state that moves, of keys that moved and of others."""
    percentiles = [f"p{percent:g}" for percent in PERCENTILES]
    rows = [
        [label, kind, f"{found['events']:,}", *(units.seconds(found[p]) for p in percentiles)]
        for label, report in reports.items()
        for kind, found in report.summary().items()
    ]
    return ResultTable(["", "events", "number", *percentiles], rows)


def sentences(report: RunReport) -> str:
    """What was seen of a run, in words."""
    return " ".join(_sentences(report))


def _sentences(report: RunReport) -> Iterator[str]:
    if report.ending:
        yield f"The run ended early: {report.ending}."
    if not report.epochs:
        yield "No epoch was delivered."
        return
    last = report.epochs[-1]
    yield (
        f"{last.last:,} events were delivered in {plural(len(report.epochs), 'epoch')} and "
        f"{units.seconds(last.delivered)}."
    )
    if "all" in (found := report.summary()):
        every = found["all"]
        slowest = report.slowest()
        assert slowest is not None
        moment, greatest, moves = slowest
        yield (
            f"Of {every['events']:,} measured ones, half were visible within "
            f"{units.seconds(every['p50'])} and 99 % within {units.seconds(every['p99'])}; the "
            f"slowest took {units.seconds(greatest)}, from {units.seconds(moment)} on, while "
            f"{'state' if moves else 'nothing'} moved."
        )
    else:
        yield (
            "No epoch began after the warm-up, so no latency was measured: run longer, or at a "
            "lower rate."
        )
    if found and report.migrations and "steady" not in found:
        yield (
            "No epoch without a move was measured: let the first move begin later, or run longer."
        )
    for one in report.migrations:
        what = f"{one.operator} ({plural(one.bins, 'bin')}, {one.share:.0%} of its state)"
        if one.ended is None:
            yield f"The move of {what} by {one.strategy}, asked for at {one.asked:.1f} s, is open."
        else:
            took = units.seconds(one.ended - one.asked)
            yield f"The move of {what} by {one.strategy} is {one.outcome} and took {took}."


def _cells(one: Disturbance) -> list[str]:
    greatest = one.greatest or None  # no measured event felt it
    times = map(units.seconds, (greatest, one.duration, one.disruption, one.jitter))
    return [*times, f"{one.share:.0%}", size(one.fetched)]


def _told(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)
