"""A life of a story, as a Spark application: `python -m tests.support.kills.graph_application`.

`Application` starts it; its arguments, those of `main`, come as a line of JSON.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark import cloudpickle

import godwit as gw
from godwit.log.history import History
from godwit.spark.sinks import lake_sink
from tests.support import column_workloads, timed_workloads
from tests.support.feed import Feed
from tests.support.kills import graph_parts
from tests.support.kills.application import RETENTION, session
from tests.support.kills.graph import SOURCES, make_sinks
from tests.support.kills.story import ASKED, BINS, Move, Split, Story

# Tasks get functions of these as they are: to import the modules takes long.
for module in (column_workloads, timed_workloads, graph_parts):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

SILENCE = "1 s"  # after which sources are idle, in stories where they may be
RETAINED = 10_000  # epochs: the model wants to know their watermarks, which are a matter of time
CONF = {
    "spark.sql.session.timeZone": "UTC",
    # The model wants to know the input of each epoch.
    "spark.sql.streaming.minBatchesToRetain": "10000",
}


def main(home: str, java: str, seed: int, life: int, dsn: str | None) -> None:
    """Play one life; what others before it did not come to, comes first."""
    here, story = Path(home), Story.of(seed)
    spark = session("local[2,4]", java, CONF)
    feeds = {name: Feed(here / name, graph_parts.RECORDS) for name in SOURCES}

    def write(story: Story, lives: int) -> None:
        for name, feed in feeds.items():
            there = len(list(feed.directory.glob("*.parquet")))
            for rows in story.files(name, lives)[there:]:
                feed.add(rows)

    if story.by_tasks:
        setattr(lake_sink, "LARGE", 1)  # noqa: B010
    graph = story.graph
    idle = SILENCE if graph.idle else None
    sources = {
        name: gw.stream(feeds[name].stream(spark), name=name, idle_after=idle)
        for name in graph.sources
    }
    job = graph.job(sources, make_sinks(graph, here, dsn))
    write(story, life)
    # A life that was killed before the first intent has left nothing, no number of bins either.
    has_bins = list(History(here / "checkpoint").intents())
    bins = story.lives[life].bins or (None if has_bins else BINS[0])
    query = job.start(
        here / "checkpoint",
        workers=story.lives[life].workers,
        options=gw.Options(bins=bins, retention=RETAINED if graph.idle else RETENTION),
    )
    for batch in story.lives[life].batches:
        for asked in batch.asks:
            told = ask(query, asked)
            with (here / ASKED).open("a") as file:
                file.write(f"{told}\n")
        for name, rows in batch.rows:
            feeds[name].add(rows)
    query.process_all_available()
    query.stop()


def ask(query: gw.Query, asked: Move | Split) -> str:
    """Ask for a migration, or for other bins; tells what was accepted, or that it was not."""
    of = "one" if asked.operator is not None or len(query.operators) == 1 else "all"
    if isinstance(asked, Split):
        there = {query.routing(name).bins for name in _named(query, asked.operator)}
        way = "merge" if asked.bins < max(there) else "split" if there != {asked.bins} else "keep"
        try:
            query.split(asked.bins, asked.operator)
        except gw.RefusedError:
            if way != "merge":  # bins merge where they are at one worker
                raise
            return f"a refused merge of {of}"
        return f"a {way} of {of}"
    query.migrate(target(query, asked), asked.operator, strategy=asked.strategy, supersede=True)
    return f"a move of {of}"


def target(query: gw.Query, move: Move) -> gw.Routing | int:
    """A routing is for operators with equally many bins."""
    bins = {query.routing(name).bins for name in _named(query, move.operator)}
    if isinstance(move.to, int) or len(bins) > 1:
        return move.to if isinstance(move.to, int) else max(move.to) + 1
    even = gw.Routing.even(min(bins), max(move.to) + 1)
    return even.assign({bin: move.to[bin % len(move.to)] for bin in range(even.bins)})


def _named(query: gw.Query, operator: str | None) -> Sequence[str]:
    return query.operators if operator is None else [operator]


if __name__ == "__main__":
    main(**json.loads(sys.stdin.readline()))
