"""Queries 11 to 22, which the public SQL suites add to NEXMark's.

Queries with state take the events as a DataFrame, or as a stream that several of them share.
Queries 13, 14, 21 and 22 keep none and are Spark's business alone. Results of 15 to 19 are updated:
the newest row of a key counts.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import godwit as gw
from godwit.model.time import Duration
from lab.workloads.nexmark.queries import bids

Events = DataFrame | gw.Stream

RANKS: Final = {  # of bids, by their price
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
RANKED_BIDS: Final[dict[str, Any]] = {f"{rank}_bids": gw.count(rank) for rank in RANKS}
COUNTED: Final[dict[str, Any]] = {
    f"{rank}_{what}": gw.count(f"{rank}_{what}")
    for what in ("bids", "bidders", "auctions")
    for rank in ("total", *RANKS)
}
# Newer generators give each bid a channel and a URL. Ours does as the papers' do, so these are made
# of a bid's numbers: half of the bids come through four channels, most others have a channel_id.
CHANNEL: Final = (
    "CASE price % 8 WHEN 0 THEN 'Google' WHEN 1 THEN 'Facebook' WHEN 2 THEN 'Baidu' "
    "WHEN 3 THEN 'Apple' ELSE 'channel-' || (price % 1000) END"
)
URL: Final = (
    "'https://www.nexmark.com/a' || (price % 31) || '/b' || (bidder % 31) || '/c' "
    "|| (auction % 31) || '/item.htm?query=1' || CASE WHEN price % 8 < 4 OR price % 10 = 0 THEN '' "
    "ELSE '&channel_id=' || (price % 1000) END"
)


def q11(events: Events, gap: Duration = "10 s", delay: Duration = "0 s") -> gw.Stream:
    """How many bids has a bidder made in each session?

    State: a count for each open session.
    """
    rows = house(events).transform(bids)
    return rows.aggregate(
        "sessions",
        key="bidder",
        window=gw.session(gap),
        time="time",
        delay=delay,
        bids=gw.count(),
    )


def q13(events: DataFrame, keys: int = 10_000) -> DataFrame:
    """Bids with the value that a table has for their auction: a side input that each task has."""
    table = events.sparkSession.range(keys).selectExpr("id AS key", "'value-' || id AS value")
    return bids(events).join(sf.broadcast(table), sf.expr("auction % 10000 = key")).drop("key")


def q14(events: DataFrame) -> DataFrame:
    """Bids of some prices in euro, with their time of the day and a count by a Python function."""
    count_c = sf.udf(lambda text: text.count("c"), "long")
    time_of_day = """CASE WHEN hour(time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(time) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END AS bid_time"""
    found = events.selectExpr("bid.*", "time").withColumn("price", sf.expr("0.908 * price"))
    found = found.where("price > 1000000 AND price < 50000000")
    return found.selectExpr("*", time_of_day).withColumn("c_counts", count_c("extra"))


def q15(events: Events, delay: Duration = "0 s") -> gw.Stream:
    """Bids, bidders and auctions of a day: how many are there, and how many of each rank?

    State: the counts of each day; each bidder, auction and rank of the last day, once.
    """
    return count_each_and_once(house(events).transform(by_day), "days", ["day"], delay)


def q16(events: Events, delay: Duration = "0 s") -> gw.Stream:
    """As query 15 for each channel, with the last minute in which somebody has bid.

    State: the same for each channel.
    """
    rows, last = house(events).transform(by_day), gw.max("minute")
    return count_each_and_once(rows, "channels", ["channel", "day"], delay, minute=last)


def q17(events: Events) -> gw.Stream:
    """Counts, by rank, and prices of the bids on an auction and day.

    State: eight numbers for each of them.
    """
    rows = house(events).transform(by_day)
    return rows.transform(lambda rows: rows.selectExpr("*", *flags("rank", RANKS))).aggregate(
        "auction-days",
        key=["auction", "day"],
        total_bids=gw.count(),
        **RANKED_BIDS,
        min_price=gw.min("price"),
        max_price=gw.max("price"),
        avg_price=gw.avg("price"),
        sum_price=gw.sum("price"),
    )


def q18(events: Events) -> gw.Stream:
    """The last bid of each bidder on each auction; of several at a time the highest.

    State: these bids, for ever.
    """
    rows, last = house(events).transform(bids), gw.top(1, by="time", of=["time", "price"])
    rows = rows.aggregate("last-bids", key=["bidder", "auction"], last=last)
    return rows.transform(lambda rows: rows.selectExpr("bidder", "auction", "inline(last)"))


def q19(events: Events) -> gw.Stream:
    """The ten highest bids on each auction.

    State: these bids, for ever.
    """
    best = gw.top(10, by="price", of=["price", "bidder", "time"])
    rows = house(events).transform(bids).aggregate("top-bids", key="auction", best=best)
    rows = rows.transform(lambda rows: rows.selectExpr("auction", "posexplode(best) AS (n, bid)"))
    return rows.transform(lambda rows: rows.selectExpr("auction", "n + 1 AS place", "bid.*"))


def q20(events: Events) -> gw.Stream:
    """Bids on auctions of category 10, with the auction.

    State: these auctions and all bids, for ever.
    """
    both = house(events)
    auctions = both.transform(
        lambda rows: rows.where("auction.category = 10").selectExpr(
            "auction.id AS auction", "auction.item", "auction.reserve", "auction.seller"
        )
    )
    return both.transform(bids).join("expanded", auctions, on="auction")


def q21(events: DataFrame) -> DataFrame:
    """Bids with the number of the channel that they came through, if it has one."""
    known = "array_position(array('apple', 'google', 'facebook', 'baidu'), lower(channel))"
    told = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
    found = visits(events).selectExpr(
        "auction",
        "bidder",
        "price",
        "channel",
        f"CASE WHEN {known} > 0 THEN string({known} - 1) ELSE {told} END AS channel_id",
    )
    return found.where("channel_id IS NOT NULL")


def q22(events: DataFrame) -> DataFrame:
    """Bids with the three directories of their URL."""
    dirs = [f"split_part(url, '/', {n + 3}) AS dir{n}" for n in (1, 2, 3)]
    return visits(events).selectExpr("auction", "bidder", "price", "channel", *dirs)


# -- what several queries share --------------------------------------------------------------------


def house(events: Events) -> gw.Stream:
    return events if isinstance(events, gw.Stream) else gw.stream(events)


def visits(events: DataFrame) -> DataFrame:
    """Bids with the channel that they came through, and their URL."""
    return bids(events).selectExpr("*", f"{CHANNEL} AS channel", f"{URL} AS url")


def by_day(events: DataFrame) -> DataFrame:
    """Bids with their day, minute and rank."""
    ranks = " ".join(f"WHEN {prices} THEN '{rank}'" for rank, prices in RANKS.items())
    return visits(events).selectExpr(
        "* EXCEPT (url)",
        "date_format(time, 'yyyy-MM-dd') AS day",
        "date_format(time, 'HH:mm') AS minute",
        f"CASE {ranks} END AS rank",
    )


def count_each_and_once(
    rows: gw.Stream, name: str, key: Sequence[str], delay: Duration, **others: Any
) -> gw.Stream:
    """How many bids are there by `key`, which has the day, and how many bidders and auctions?

    A bid counts as one of all and as one of its rank. Of each bidder and auction only the first of
    a day counts: two of a day are never a day apart.
    """
    counted = rows.transform(
        lambda rows: rows.selectExpr("* EXCEPT (rank)", "explode(array('total', rank)) AS rank")
    )
    each = counted.transform(
        lambda rows: rows.selectExpr(*key, "minute", "rank || '_bids' AS what")
    )
    whats = "stack(2, rank || '_bidders', bidder, rank || '_auctions', auction) AS (what, id)"
    once = counted.transform(
        lambda rows: rows.selectExpr(*key, "minute", "time", whats)
    ).deduplicate(
        f"{name}-firsts", key=[*key, "what", "id"], time="time", within="1 day", delay=delay
    )
    told = each.union(once.transform(lambda rows: rows.select(*key, "minute", "what")))
    told = told.transform(lambda rows: rows.selectExpr("*", *flags("what", COUNTED)))
    return told.aggregate(name, key=key, **COUNTED, **others)


def flags(column: str, values: Iterable[str]) -> list[str]:
    """A column for each value, null where another one is."""
    return [f"CASE WHEN {column} = '{value}' THEN 1 END AS {value}" for value in values]
