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
from tests.support import column_workloads, timed_workloads
from tests.support.feed import Feed
from tests.support.kills import graph_parts
from tests.support.kills.application import RETENTION, session
from tests.support.kills.graph import SOURCES, make_sinks
from tests.support.kills.story import BINS, Move, Story

# Tasks get functions of these as they are: to import the modules takes long.
for module in (column_workloads, timed_workloads, graph_parts):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

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

    graph = story.graph
    sources = {name: gw.stream(feeds[name].stream(spark), name=name) for name in graph.sources}
    job = graph.job(sources, make_sinks(graph, here, dsn))
    write(story, life)
    # A life that was killed before the first intent has left nothing, no number of bins either.
    has_bins = list(History(here / "checkpoint").intents())
    bins = story.lives[life].bins or (None if has_bins else BINS[0])
    query = job.start(
        here / "checkpoint",
        workers=story.lives[life].workers,
        options=gw.Options(bins=bins, retention=RETENTION),
    )
    for batch in story.lives[life].batches:
        for move in batch.moves:
            ask(query, move)
        for name, rows in batch.rows:
            feeds[name].add(rows)
    query.process_all_available()
    query.stop()


def ask(query: gw.Query, move: Move) -> None:
    for operator in query.operators if move.operator is None else [move.operator]:
        to = move.to if isinstance(move.to, int) else routing(query, operator, move.to)
        query.migrate(to, operator, strategy=move.strategy, supersede=True)


def routing(query: gw.Query, operator: str, owners: Sequence[int]) -> gw.Routing:
    even = gw.Routing.even(query.routing(operator).bins, max(owners) + 1)
    return even.assign({bin: owners[bin % len(owners)] for bin in range(even.bins)})


if __name__ == "__main__":
    main(**json.loads(sys.stdin.readline()))
