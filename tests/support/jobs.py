"""One small job for each kind of step, which run on Spark and in a simulation alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

import godwit as gw
from godwit.spark.sinks.sink import Sink

Row = dict[str, Any]
Batch = Mapping[str, Sequence[Row]]  # by input
VIEWS = "user string, n long, at timestamp, closes timestamp"
CLICKS = "user string, url string, at timestamp"


@dataclass(frozen=True)
class Sample:
    """A job over inputs, by name, and what comes in, epoch by epoch."""

    job: Callable[..., gw.Job]  # of a sink, and the inputs
    inputs: Mapping[str, str]
    batches: Sequence[Batch]
    tables: Mapping[str, Sequence[str | None]]  # by operator
    needs_spark: bool = False
    timed: bool = True  # it has an event time, and so an end


def at(second: float | None) -> datetime | None:
    return None if second is None else datetime(2026, 1, 1) + timedelta(seconds=second)


def _view(user: str | None, n: int, second: float | None, closes: float | None = None) -> Row:
    return {"user": user, "n": n, "at": at(second), "closes": at(closes)}


VIEWED: Sequence[Batch] = [
    {
        "views": [
            _view("ann", 1, 0, 9),
            _view("ann", 2, 4.5, 4),
            _view("bob", 3, 10, 12),
            _view(None, 4, 11),
        ]
    },
    {"views": [_view("ann", 5, 10, 30), _view("bob", 6, None, 40), _view("cy", 7, -3, 5)]},
    {"views": [_view("bob", 8, 21, 22), _view("ann", 9, 20, 50)]},
]


def count(views: Any, sink: Sink) -> gw.Job:
    counts = gw.stream(views).aggregate("counts", key="user", n=gw.count(), most=gw.max("n"))
    return counts.to(sink)


def sliding_counts(views: Any, sink: Sink) -> gw.Job:
    spans = gw.stream(views).aggregate(
        "spans",
        key="user",
        window=gw.sliding("10 seconds", "4 seconds"),
        time="at",
        delay="3 seconds",
        n=gw.sum("n"),
    )
    return spans.to(sink)


def session_counts(views: Any, sink: Sink) -> gw.Job:
    spans = gw.stream(views).aggregate(
        "spans",
        key="user",
        window=gw.session("6 seconds"),
        time="at",
        delay="3 seconds",
        n=gw.sum("n"),
        first=gw.first("n"),
    )
    return spans.to(sink)


def session_counts_until(views: Any, sink: Sink) -> gw.Job:
    spans = gw.stream(views).aggregate(
        "spans",
        key="user",
        window=gw.session(until="closes"),
        time="at",
        delay="3 seconds",
        n=gw.sum("n"),
    )
    return spans.to(sink)


def expiring(views: Any, sink: Sink) -> gw.Job:
    counts = gw.stream(views).aggregate(
        "counts", key="user", n=gw.count(), time="at", delay="1 s", ttl="5 s"
    )
    return counts.to(sink)


def total(user: str, view: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    state.n = (state.n or 0) + view.n
    yield user, state.n


def totals(views: Any, sink: Sink) -> gw.Job:
    machine = gw.stream(views).state_machine(
        "totals", key="user", function=total, state="n long", output="user string, n long"
    )
    return machine.to(sink)


def listing(user: str, span: Any, records: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    yield user, span and span.start, span and span.end, sorted(record.n for record in records)


LISTING = "user string, start timestamp, end timestamp, numbers array<long>"


def collected(window: Any, **options: Any) -> Callable[[Any, Sink], gw.Job]:
    def job(views: Any, sink: Sink) -> gw.Job:
        stream = gw.stream(views).windows(
            "lists", window, key="user", function=listing, output=LISTING, time="at", **options
        )
        return stream.to(sink)

    return job


def remind(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    for kind, time, key, value, state in events:
        if kind == "notice":
            yield key, kind, time, state.n
        else:
            state.n = (state.n or 0) + value.n
            notify(key, time + timedelta(seconds=2))
            yield key, kind, time, state.n


REMINDED = "user string, kind string, at timestamp, n long"


def reminders(views: Any, sink: Sink) -> gw.Job:
    machine = gw.stream(views).unary(
        "reminders",
        key="user",
        function=remind,
        state="n long",
        output=REMINDED,
        time="at",
        delay="2 s",
        notices="",
    )
    return machine.to(sink)


def pair(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    for kind, time, key, value, state in events:
        if kind == "left":
            state.n = value.n
        else:
            yield key, time, value.url, state.n


def pairs(views: Any, clicks: Any, sink: Sink) -> gw.Job:
    machine = gw.stream(views).binary(
        "pairs",
        gw.stream(clicks),
        key="user",
        function=pair,
        state="n long",
        output="user string, at timestamp, url string, n long",
        time="at",
        delay="20 s",
    )
    return machine.to(sink)


def joined(views: Any, clicks: Any, sink: Sink) -> gw.Job:
    """The inputs call key and time differently."""
    matched = gw.stream(views).join(
        "joined",
        gw.stream(clicks),
        on={"user": "who"},
        how="full",
        within=("-6 seconds", "5 seconds"),
        time=("at", "clicked"),
        delay="4 s",
    )
    return matched.to(sink)


def doubled(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("user", "n * 2 AS n", "at")


def labelled(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "concat(user, '!') AS label").where("user IS NOT NULL")


def transformed(views: Any, sink: Sink) -> gw.Job:
    stream = (
        gw.stream(views)
        .transform(doubled)
        .aggregate("sums", key="user", n=gw.sum("n"))
        .transform(labelled)
        .aggregate("labels", key="label", m=gw.max("n"))
        .transform(lambda rows: rows.selectExpr("upper(label) AS label", "m"))
    )
    return stream.to(sink)


def follow(user: str, view: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    yield user, state.tags, view.tags
    state.tags = view.tags


def followed(views: Any, sink: Sink) -> gw.Job:
    """The order of its records is that of their lists."""
    machine = gw.stream(views).state_machine(
        "followed",
        key="user",
        function=follow,
        state="tags array<string>",
        output="user string, before array<string>, tags array<string>",
    )
    return machine.to(sink)


TAGS = [None, [], ["b"], ["a", None], ["a"], ["a", "b"], [None], ["b", "a"]]


def _sample(job: Callable[..., gw.Job], operator: str, *tables: str, **more: Any) -> Sample:
    return Sample(job, {"views": VIEWS}, VIEWED, {operator: tables or (None,)}, **more)


SAMPLES: Mapping[str, Sample] = {
    "aggregate": _sample(count, "counts", timed=False),
    "aggregate with a window": _sample(sliding_counts, "spans", "value"),
    "aggregate with sessions": _sample(session_counts, "spans", "value"),
    "aggregate with sessions until": _sample(session_counts_until, "spans", "value"),
    "ttl": _sample(expiring, "counts", "value"),
    "state_machine": _sample(totals, "totals", timed=False),
    "nested columns": Sample(
        followed,
        {"views": "user string, tags array<string>, size struct<x: int, y: int>"},
        [
            {
                "views": [
                    {"user": "ann", "tags": tags, "size": {"x": x, "y": None}}
                    for tags in TAGS
                    for x in (2, None, 1)
                ]
            }
        ],
        {"followed": (None,)},
        timed=False,
    ),
    "sliding windows": _sample(
        collected(gw.sliding("6 seconds", "4 seconds"), delay="2 s"), "lists", "records", "open"
    ),
    "sessions": _sample(collected(gw.session("5 s"), delay="2 s"), "lists", "records", "next"),
    "sessions until": _sample(
        collected(gw.session(until="closes"), delay="2 s"), "lists", "records", "next"
    ),
    "counted windows": _sample(collected(gw.counted(2)), "lists", "records", "open", timed=False),
    "unary": _sample(reminders, "reminders", "value"),
    "binary": Sample(
        pairs,
        {"views": VIEWS, "clicks": CLICKS},
        [
            {**batch, "clicks": [{"user": "ann", "url": f"/{number}", "at": at(number * 10 + 5)}]}
            for number, batch in enumerate(VIEWED)
        ],
        {"pairs": ("value",)},
    ),
    "join": Sample(
        joined,
        {"views": VIEWS, "clicks": "who string, url string, clicked timestamp"},
        [
            {
                **batch,
                "clicks": [
                    {"who": who, "url": f"/{number}", "clicked": at(number * 10 + second)}
                    for who, second in (("ann", 0), ("bob", 5), ("ann", 5.5), (None, 1))
                ],
            }
            for number, batch in enumerate(VIEWED)
        ],
        {"joined": ("left", "right")},
    ),
    "transform": Sample(
        transformed,
        {"views": VIEWS},
        VIEWED,
        {"sums": (None,), "labels": (None,)},
        needs_spark=True,
        timed=False,
    ),
}
