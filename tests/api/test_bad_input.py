"""What a job is refused for while it is described: by one sentence, and nothing has been made."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import godwit as gw
from godwit.testing import Simulation

Case = tuple[Callable[[], Any], str]
api: Any = gw  # a type checker would refuse most of what is done here

COUNT = {"key": "user", "n": gw.count()}
TIMED = {"time": "at", "delay": "1 s"}
WITHIN = {"on": "user", "within": ("0 s", "5 m"), **TIMED}
EVENTS = {"function": print, "state": "n long", "output": "user string", **TIMED}
MINUTE = gw.tumbling("1 minute")
NEGATIVE = "'-1 s' is negative, as only the bounds of a join may be"


def views() -> Any:
    return gw.stream("user string, page string, at timestamp")


def clicks() -> Any:
    return gw.stream("user string, n long, at timestamp, id int")


def counts(name: str = "counts", **options: Any) -> Any:
    return views().aggregate(name, **{**COUNT, **options})


def joined(**options: Any) -> Any:
    return views().join("seen", clicks(), **{**WITHIN, **options})


def both(one: Any, other: Any) -> Any:
    return gw.query(counts("one").to(one), counts("other").to(other))


def twice(sink: gw.Sink) -> Any:
    return both(sink, sink)


STREAMS: list[Case] = [
    (lambda: api.stream(None), "takes a streaming DataFrame, spark.readStream..., or its columns"),
    (lambda: api.stream(views()), "not <Stream through no operator>"),
    (lambda: api.stream(["user"]), "not ['user']"),
    (lambda: gw.stream("user strin"), "type 'strin' is not supported; did you mean 'string'?"),
    (
        lambda: gw.stream("user string", name="my views"),
        "a source is named like a variable of Python, not 'my views'",
    ),
    (lambda: views().transform("page"), "transform takes a function of a DataFrame, not 'page'"),
    (lambda: views().union(gw.console()), "union takes streams of Godwit, not ConsoleSink"),
    (lambda: views().union([clicks()]), "union takes streams of Godwit, not list"),
    (
        lambda: views().join("seen", gw.files("out"), on="user"),
        "operator 'seen': its other input must be a stream of Godwit, not FilesSink",
    ),
    (
        lambda: views().join("seen", "user string", on="user"),
        "operator 'seen': its other input must be a stream of Godwit, not str",
    ),
    (
        lambda: views().binary("pairs", counts().to(gw.console()), key="user", **EVENTS),
        "operator 'pairs': its other input must be a stream of Godwit, not Job",
    ),
]
OPERATORS: list[Case] = [
    (
        lambda: counts(key=3),
        "operator 'counts': the key is a column or a list of columns, by name, not 3",
    ),
    (
        lambda: counts(key=None, window=gw.session("1 s"), **TIMED),
        "operator 'counts': the key is a column or a list of columns, by name, not None",
    ),
    (
        lambda: views().windows("w", MINUTE, key=3, function=print, output="n long", **TIMED),
        "operator 'w': the key is a column or a list of columns, by name, not 3",
    ),
    (
        lambda: views().windows("w", MINUTE, key="user", function="f", output="n long", **TIMED),
        "operator 'w': its function must be callable, not 'f'",
    ),
    (
        lambda: views().unary("u", key="user", **{**EVENTS, "output": 3}),
        "operator 'u': output: columns are a text such as 'user string, n long', not 3",
    ),
    (
        lambda: views().aggregate("counts", key="user", window=MINUTE, **TIMED),
        "operator 'counts': it computes nothing; give it at least one function",
    ),
    (
        lambda: counts(window="1 minute", **TIMED),
        "operator 'counts': '1 minute' does not aggregate; give tumbling, sliding or session",
    ),
    (
        lambda: counts(best=api.top(1, by="price", of="page")),
        "operator 'counts': top(1, by=price, of=page) column 'price' is not in the input: user",
    ),
    (
        lambda: api.top(1, by="n", of=3),
        "top() needs the columns to keep of each record; name them in of=[...]",
    ),
    (
        lambda: counts().aggregate("most", key="page", m=gw.count()),
        "operator 'most': key column 'page' is not in the input: user, n",
    ),
    (
        lambda: (
            views()
            .aggregate("counts", key="user", total=gw.count())
            .aggregate("sizes", key="n", m=gw.count())
        ),
        "operator 'sizes': key column 'n' is not in the input: user, total",
    ),
    (
        lambda: counts(time="page", delay="1 s"),
        "operator 'counts': time column 'page' is of type string; it must be a timestamp",
    ),
    (
        lambda: counts(window=MINUTE, time="page", delay="1 s"),
        "operator 'counts': time column 'page' is of type string; it must be a timestamp",
    ),
    (
        lambda: counts(time="when", delay="1 s"),
        "operator 'counts': time column 'when' is not in the input: user, page, at",
    ),
    (lambda: counts(time="at", delay="-1 s"), f"operator 'counts': {NEGATIVE}"),
    (
        lambda: counts(time="at", delay=timedelta(seconds=-1)),
        "operator 'counts': its delay cannot be negative",
    ),
    (
        lambda: counts(time="at", delay=5),
        "operator 'counts': '5' is no duration; write it like '10 seconds'",
    ),
    (
        lambda: counts(time="at", delay="late"),
        "operator 'counts': 'late' is no duration; write it like '10 seconds'",
    ),
    (lambda: counts(ttl="-1 s", **TIMED), f"operator 'counts': {NEGATIVE}"),
    (
        lambda: views().deduplicate("first", key="user", within="-1 s", **TIMED),
        f"operator 'first': {NEGATIVE}",
    ),
    (lambda: gw.tumbling("-1 s"), NEGATIVE),
]
JOINS: list[Case] = [
    (lambda: joined(on=None), "on=... takes the key, a column or several or pairs, not None"),
    (lambda: joined(on=3), "on=... takes the key, a column or several or pairs, not 3"),
    (lambda: joined(on=[3]), "a key is a column of both, or a pair of them, not 3"),
    (lambda: joined(on="id"), "on the left, key column 'id' is not in the input: user, page, at"),
    (
        lambda: joined(on="page"),
        "on the right, key column 'page' is not in the input: user, n, at, id",
    ),
    (
        lambda: joined(on={"user": "id"}),
        "key column 'user' of the left is string and 'id' of the right is int; cast one of them",
    ),
    (
        lambda: joined(within=timedelta(minutes=5)),
        "within=... takes two bounds, as in ('-5 minutes', '0 s'), not datetime.timedelta(",
    ),
    (lambda: joined(within=("5 m",)), "within=... takes two bounds"),
    (
        lambda: joined(within=("5 m", "-10 m")),
        "nothing is within '5 m' and '-10 m'; swap the bounds",
    ),
    (lambda: joined(within=(timedelta(1), timedelta(-1))), "swap the bounds"),
    (lambda: joined(within=(-5, 5)), "'-5' is no duration; write it like '10 seconds'"),
    (lambda: joined(within=(None, "5 m")), "'None' is no duration; write it like '10 seconds'"),
    (lambda: joined(time=5), "time is a column, or one of the left and one of the right, not 5"),
    (
        lambda: joined(time=("page", "at")),
        "time column 'page' of the left is string and 'at' of the right is timestamp; cast",
    ),
    (lambda: joined(delay="-1 s"), NEGATIVE),
]
QUERIES: list[Case] = [
    (lambda: counts().to("out"), "'out' is no sink; use files, table"),
    (lambda: counts().to(clicks()), "<Stream through no operator> is no sink; use files, table"),
    (lambda: counts().to(gw.files), "is no sink; use files, table"),
    (
        lambda: clicks().to(gw.files("out")),
        "this query keeps no state: use Spark's own writeStream for it",
    ),
    (lambda: gw.query(), "a query has at least one sink: gw.query(stream.to(sink), ...)"),
    (lambda: api.query(counts()), "gw.query(one.to(sink), ...), not of <Stream through counts>"),
    (lambda: api.query([counts().to(gw.console())]), "not of [<Job of counts>]"),
    (
        lambda: counts().join("seen", counts(), on="user").to(gw.console()),
        "the query has two operators 'counts'",
    ),
    (
        lambda: gw.query(counts().to(gw.console()), counts().to(gw.files("out"))),
        "the query has two operators 'counts'",
    ),
    (lambda: both(gw.files("out"), gw.files("./out/")), "/out; name another place for one of them"),
    (lambda: twice(gw.delta("out")), "two streams end in the Delta table out; name another"),
    (
        lambda: twice(gw.postgres("", "t")),
        "two streams end in the PostgreSQL table t; name another",
    ),
    (lambda: twice(gw.iceberg("ns.t")), "two streams end in the Iceberg table ns.t; name another"),
    (
        lambda: twice(gw.kafka("t", "broker:9092")),
        "two streams end in the Kafka topic t; name another",
    ),
    (lambda: twice(gw.memory("t")), "two streams end in memory table t; name another"),
    (lambda: twice(gw.table("t")), "two streams end in table t; name another"),
]
SINKS: list[Case] = [
    (
        lambda: api.files(None),
        "a sink needs a location, not None; use a local path, a file: URL, or an object store",
    ),
    (lambda: api.delta(None), "the sink gw.delta needs the path or URL of a table, not None"),
    (
        lambda: api.delta("out", key=3),
        "the sink's key is a column or a list of columns, by name, not 3",
    ),
    (lambda: api.foreach_batch("f"), "foreach_batch takes a function of rows and epoch, not 'f'"),
]


@pytest.mark.parametrize(("describe", "told"), [*STREAMS, *OPERATORS, *JOINS, *QUERIES, *SINKS])
def test_it_is_refused_by_one_sentence_and_makes_nothing(
    describe: Callable[[], Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where sinks would make what they need
    with pytest.raises(gw.ConfigError) as refused:
        describe()
    assert told in str(refused.value)
    assert [*tmp_path.iterdir()] == []


def test_a_stream_may_meet_itself() -> None:
    """Each record twice, or with all of its key: odd, but nothing to refuse."""
    words: Any = gw.stream("word string")
    doubled = words.union(words).aggregate("counts", key="word", n=gw.count())
    pairs = words.join("pairs", words, on="word")
    simulation = Simulation(gw.query(doubled.to(gw.console()), pairs.to(gw.console())))
    simulation.feed([{"word": "to"}, {"word": "be"}, {"word": "to"}])
    assert {row["word"]: row["n"] for row in simulation.outputs(sink=0)} == {"to": 4, "be": 2}
    assert Counter(row["word"] for row in simulation.outputs(sink=1)) == {"to": 4, "be": 1}
