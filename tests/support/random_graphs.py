"""Random graphs of operators of every kind over several sources, as users write them.

What each puts out becomes a record of the same columns again, so any can take any.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import godwit as gw
from godwit.model.keys import flat
from godwit.testing.arrow_flow import ArrowFlow
from tests.support.counting_workloads import KEY, KEY_FIELDS, Row, Workload
from tests.support.graph_model import (
    BOUNDS,
    GAP,
    JOINS,
    KINDS,
    LENGTH,
    NONE,
    SOURCE,
    TIMED,
    Graphs,
    Kind,
    Part,
)
from tests.support.history_events import Feed, Story
from tests.support.timed_workloads import MOMENT, at

RECORD = pa.schema([*KEY_FIELDS, ("n", pa.int64()), ("at", MOMENT)])
COLUMNS = "name string, part int, n long, at timestamp"
SOURCES = ("s0", "s1", "s2")
OPERATORS = 6  # at the most
PACE = 2  # of event time, in an epoch


@dataclass(frozen=True, slots=True)
class Shaped:
    """Outputs of a kind as records of the columns that all have."""

    kind: Kind

    def __call__(self, *rows: Any) -> Any:
        raise NotImplementedError("a simulation runs it over Arrow")

    def columns(self, *schemas: pa.Schema) -> pa.Schema:
        return RECORD

    def records(self, *rows: pa.Table) -> pa.Table:
        columns = {name: flat(rows[0].column(name)) for name in rows[0].column_names}
        match self.kind:
            case "sum":
                n, when = columns["total"], columns["latest"]
            case "tumbling" | "session":
                n, when = columns["total"], columns["window_time"]
            case "bounded":
                n, when = _both(columns), columns["left_at"]
            case "inner":
                n = _both(columns)
                times = (columns[side].cast(pa.int64()) for side in ("left_at", "right_at"))
                when = pc.max_element_wise(*times).cast(MOMENT)
            case "first":
                n, when = columns["n"], columns["at"]
        return pa.table([*(columns[name] for name in KEY), n, when], schema=RECORD)


def _both(columns: dict[str, Any]) -> Any:
    left, right = (pc.fill_null(columns[f"{side}_n"], NONE) for side in ("left", "right"))
    return pc.subtract(left, right)


def job_of(parts: Sequence[Part], idle_after: Mapping[str, int]) -> gw.Job:
    streams = {
        name: gw.stream(COLUMNS, name=name, idle_after=f"{limit} s" if limit else None)
        for name in SOURCES
        for limit in [idle_after.get(name)]
    }
    for part in parts:
        left, *right = (_union([streams[name] for name in names]) for names in part.inputs)
        options: dict[str, Any] = {"late": gw.files(f"late-{part.name}")} if part.late else {}
        if part.is_timed:
            options |= {"time": "at", "delay": f"{part.delay} s"}
        match part.kind:
            case "sum":
                options |= {"total": gw.sum("n"), "latest": gw.max("at")}
                stream = left.aggregate(part.name, key=KEY, **options)
            case "first":
                stream = left.deduplicate(part.name, key=(*KEY, "n"), time="at")
            case "tumbling" | "session":
                tumbling, session = gw.tumbling(f"{LENGTH} s"), gw.session(f"{GAP} s")
                options |= {"window": tumbling if part.kind == "tumbling" else session}
                stream = left.aggregate(part.name, key=KEY, total=gw.sum("n"), **options)
            case "bounded":
                within = f"{BOUNDS[0]} s", f"{BOUNDS[1]} s"
                options |= {"on": KEY, "how": "left", "within": within}
                stream = left.join(part.name, *right, **options)
            case "inner":
                stream = left.join(part.name, *right, on=KEY)
        streams[part.name] = stream.transform(Shaped(part.kind))
    ends = [part.name for part in parts if part.has_sink]
    return gw.query(*(streams[name].to(gw.files(f"sink-{name}")) for name in ends))


def _union(streams: Sequence[gw.Stream]) -> gw.Stream:
    return streams[0].union(*streams[1:])


@dataclass(frozen=True, slots=True)
class RandomGraph:
    """Operators, and after how many seconds sources are idle."""

    parts: tuple[Part, ...]
    idle_after: Mapping[str, int]

    def workload(self) -> Workload:
        flow = ArrowFlow.of(job_of(self.parts, self.idle_after)._flow, None)
        *before, last = flow.operators.values()
        return Workload(
            f"graph of {len(self.parts)}",
            RECORD,
            last,
            lambda: Graphs(self.parts, self.idle_after),
            RECORDS,
            before=tuple(before),
            edges={"flow": flow, "sinks": [part.name for part in self.parts if part.has_sink]},
        )


@st.composite
def graphs(draw: st.DrawFn) -> RandomGraph:
    """Some operators, each over one or two sources or operators before it, a join over twice as
    many; what nobody takes, and what else likes, ends in a sink."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=OPERATORS))
    sources = SOURCES[: draw(st.sampled_from([2, 3]))]
    streams, parts, joins = list(sources), list[Part](), 0
    few = partial(st.lists, min_size=1, max_size=2, unique=True)
    for number, kind in enumerate(kinds):
        taken = st.sampled_from([*reversed(streams)])
        joins += kind in JOINS
        if joins > 2 and kind in JOINS:  # their rows would be too many
            kind = "first"
        part = Part(
            f"o{number}",
            kind,
            tuple(draw(few(taken))),
            tuple(draw(few(taken))) if kind in JOINS else (),
            draw(st.sampled_from([0, 2])),
            draw(st.booleans()),
            kind in TIMED and draw(st.booleans()),
        )
        parts.append(part)
        streams.append(part.name)
    taken_by_some = {name for part in parts for names in part.inputs for name in names}
    parts = [part if part.name in taken_by_some else replace(part, has_sink=True) for part in parts]
    limits = draw(st.dictionaries(st.sampled_from(sources), st.sampled_from([1, 3])))
    return RandomGraph(tuple(parts), limits)


RECORDS: tuple[Row, ...] = tuple(
    {SOURCE: source, "name": name, "part": part, "n": n, "at": at(second)}
    for number, source in enumerate(SOURCES)
    for (name, part), n, second in (
        (("a", 1), 1, 0),
        (("a", 1), None, number),
        (("a", 1), 1, 1),
        (("", 0), 5, 3),
        (("a", 1), -2, number * 3),
        (("a", None), 5, 1),
        (("", 0), number, None),
    )
)


def going_on(story: Story) -> Story:
    """The times of a story's records go on from epoch to epoch."""
    events, epoch = list[Any](), 0
    for event in story.events:
        if isinstance(event, Feed):
            later = timedelta(seconds=PACE * epoch)
            rows = ({**row, "at": row["at"] and row["at"] + later} for row in event.rows)
            event, epoch = Feed(tuple(rows)), epoch + 1
        events.append(event)
    return replace(story, events=tuple(events))
