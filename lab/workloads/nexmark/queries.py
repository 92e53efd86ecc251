"""NEXMark's queries 1 to 9, and Rhino's three, over a DataFrame of events.

Each says once what it computes; lengths of windows are parameters, so that time can be dilated.
Queries 1 and 2 keep no state and are Spark's business alone. A query with several results gives
them by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

import godwit as gw
from godwit.model.time import Duration, micros

SHARDS: Final = 64  # query 7 finds the highest bid of each, and then of all
MICROSECOND: Final = timedelta(microseconds=1)


def q1(events: DataFrame) -> DataFrame:
    """Bids with their price in euro."""
    return bids(events).withColumn("price", sf.expr("0.908 * price"))


def q2(events: DataFrame) -> DataFrame:
    """The prices bid for some of the auctions."""
    return bids(events).where("auction % 123 = 0").select("auction", "price")


def q3(events: DataFrame) -> gw.Stream:
    """Who sells in category 10 and lives in OR, ID or CA? Each match once, whichever came first.

    State: persons of these states, and auctions of this category; both for ever.
    """
    persons = events.where("person.state IN ('OR', 'ID', 'CA')").select(
        sf.col("person.id").alias("seller"), "person.name", "person.city", "person.state"
    )
    auctions = events.where("auction.category = 10").select(
        "auction.seller", sf.col("auction.id").alias("auction")
    )
    return gw.stream(persons).join("sellers", gw.stream(auctions), on="seller")


def q4(events: DataFrame, delay: Duration = "0 s") -> gw.Stream:
    """The average winning price of a category, at each close of an auction in it.

    State: the open auctions with their best bid, and two numbers a category.
    """
    return category_averages(q9(events, delay))


def category_averages(won: gw.Stream) -> gw.Stream:
    return won.state_machine(
        "averages",
        key="category",
        function=running_average,
        state="total long, closed long",
        output="category long, auction long, average double",
        time="expires",
    )


def running_average(key: int, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    state.total = (state.total or 0) + value.price
    state.closed = (state.closed or 0) + 1
    yield key, value.auction, state.total / state.closed


def q5(
    events: DataFrame,
    length: Duration = "60 s",
    slide: Duration = "1 s",
    delay: Duration = "0 s",
) -> gw.Stream:
    """The auctions with most bids in each sliding window, all of them if several have as many.

    State: a count for each auction and pane.
    """
    return hottest(hot_items(events, length, slide, delay), slide)


def hottest(counts: gw.Stream, slide: Duration) -> gw.Stream:
    return counts.transform(lambda rows: rows.withColumnRenamed("window_end", "window")).windows(
        "hottest",
        gw.tumbling(slide),
        key="window",
        function=most_bids,
        output="window timestamp, auction long, bids long",
        time="window_time",
        delay="0 s",
    )


def hot_items(events: DataFrame, length: Duration, slide: Duration, delay: Duration) -> gw.Stream:
    """How many bids has each auction in each sliding window? (Rhino's NBQ5.)"""
    return gw.stream(bids(events)).aggregate(
        "bids",
        key="auction",
        window=gw.sliding(length, slide),
        time="time",
        delay=delay,
        bids=gw.count(),
    )


def most_bids(key: Any, span: Any, records: Any) -> Iterator[tuple[Any, ...]]:
    most = max(record.bids for record in records)
    for record in records:
        if record.bids == most:
            yield key, record.auction, most


def q6(events: DataFrame, delay: Duration = "0 s") -> gw.Stream:
    """The average of a seller's last ten winning prices, at each close of an auction of theirs.

    State: the open auctions with their best bid, and up to ten prices a seller, for ever.
    """
    return seller_averages(q9(events, delay))


def seller_averages(won: gw.Stream) -> gw.Stream:
    return won.state_machine(
        "sellers",
        key="seller",
        function=last_ten,
        state="prices array<long>",
        output="seller long, auction long, average double",
        time="expires",
    )


def last_ten(key: int, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    state.prices = [*(state.prices or ()), value.price][-10:]
    yield key, value.auction, sum(state.prices) / len(state.prices)


def q4_q6_q9(events: DataFrame, delay: Duration = "0 s") -> Mapping[str, gw.Stream]:
    """Queries 4, 6 and 9 at once: one operator finds the winning bids of all three.

    State: the open auctions with their best bid, once; and what queries 4 and 6 keep behind them.
    """
    won = q9(events, delay)
    return {"q4": category_averages(won), "q6": seller_averages(won), "q9": won}


def q7(events: DataFrame, length: Duration = "60 s", delay: Duration = "0 s") -> gw.Stream:
    """The highest bid of each tumbling window, all of them if several are as high.

    State: the highest bids of the open windows, by shard, since one key cannot be shared out.
    """
    rows = bids(events).withColumns(
        {"window": window_end(length), "shard": sf.expr(f"auction % {SHARDS}")}
    )
    shards = gw.stream(rows).unary(
        "shards",
        key=["window", "shard"],
        function=highest,
        state={"best": gw.Value("price long"), "bids": gw.List("auction long, bidder long")},
        output="window timestamp, time timestamp, auction long, bidder long, price long",
        time="time",
        delay=delay,
        notices="",
    )
    return shards.windows(
        "highest",
        gw.tumbling(length),
        key="window",
        function=highest_of_all,
        output="window timestamp, auction long, bidder long, price long",
        time="time",
        delay="0 s",
    )


def highest(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    """For `unary`, keyed by window and shard: the highest bids when the window ends."""
    for kind, _, key, value, state in events:
        best = state.best
        if kind == "notice":
            for auction, bidder in state.bids:
                yield key.window, key.window - MICROSECOND, auction, bidder, best.price
            best.clear()
            state.bids.clear()
            continue
        if not best.exists:
            notify(key, key.window)
        if best.price is None or value.price > best.price:
            best.price = value.price
            state.bids.clear()
        if value.price == best.price:
            state.bids.append((value.auction, value.bidder))


def highest_of_all(key: Any, span: Any, records: Any) -> Iterator[tuple[Any, ...]]:
    most = max(record.price for record in records)
    for record in records:
        if record.price == most:
            yield key, record.auction, record.bidder, most


def q8(events: DataFrame, length: Duration = "12 h", delay: Duration = "0 s") -> gw.Stream:
    """Who opened an account and an auction in the same tumbling window? With all such auctions.

    State: persons and auctions, whole, for as long as a window. (Rhino's NBQ8.)
    """
    window = window_end(length).alias("window")
    persons = events.where("person IS NOT NULL").select("person.*", window, "time")
    auctions = events.where("auction IS NOT NULL").select("auction.*", window, "time")
    return gw.stream(persons.withColumnRenamed("id", "person")).join(
        "new-sellers",
        gw.stream(auctions.withColumnRenamed("id", "auction")),
        on={"person": "seller", "window": "window"},
        within=(f"-{micros(length)} us", f"{micros(length)} us"),
        time="time",
        delay=delay,
    )


def q9(events: DataFrame, delay: Duration = "0 s") -> gw.Stream:
    """Auctions with the bid that wins them, when they close; of equal bids the first wins.

    Records come in the order of time, and of those of one moment and epoch auctions come before
    bids: what is bid before the auction is known, is bid too early. State: the open auctions with
    their best bid.
    """
    rows = events.where("person IS NULL").selectExpr(
        "coalesce(auction.id, bid.auction) AS auction",
        "time",
        "bid IS NOT NULL AS is_bid",
        "bid.bidder",
        "bid.price",
        "auction.reserve",
        "auction.expires",
        "auction.seller",
        "auction.category",
    )
    return gw.stream(rows).unary(
        "winners",
        key="auction",
        function=close_auctions,
        state="reserve long, seller long, category long, bidder long, price long",
        output="auction long, seller long, category long, bidder long, price long, "
        "expires timestamp",
        time="time",
        delay=delay,
        notices="",
        strict=True,
    )


def close_auctions(events: Any, notify: Any) -> Iterator[tuple[Any, ...]]:
    for kind, time, key, value, state in events:
        if kind == "notice":
            if state.price is not None:
                yield key, state.seller, state.category, state.bidder, state.price, time
            state.clear()
        elif not value.is_bid:
            state.reserve, state.seller, state.category = (
                value.reserve,
                value.seller,
                value.category,
            )
            notify(key, value.expires)
        elif state.exists and value.price >= state.reserve and value.price > (state.price or 0):
            state.bidder, state.price = value.bidder, value.price


def nbqx(
    events: DataFrame,
    gaps: Sequence[Duration] = ("30 min", "60 min", "90 min", "120 min"),
    length: Duration = "4 h",
    delay: Duration = "0 s",
) -> Mapping[str, gw.Stream]:
    """Rhino's NBQX: auctions and bids on them, in sessions of four gaps and in a tumbling window.

    State: all records of the open windows, in five operators over one stream.
    """
    both = gw.stream(events.where("person IS NULL")).transform(auctions_and_bids)
    windows: dict[str, gw.Session | gw.Sliding] = {
        f"session-{n}": gw.session(gap) for n, gap in enumerate(gaps)
    }
    windows["tumbling"] = gw.tumbling(length)
    return {
        name: both.windows(
            name,
            window,
            key="auction",
            function=pairs,
            output="auction long, seller long, price long",
            time="time",
            delay=delay,
        )
        for name, window in windows.items()
    }


def auctions_and_bids(events: DataFrame) -> DataFrame:
    """An auction has a seller, and a bid has a price."""
    return events.selectExpr(
        "coalesce(auction.id, bid.auction) AS auction", "time", "auction.seller", "bid.price"
    )


def pairs(key: Any, span: Any, records: Any) -> Iterator[tuple[Any, ...]]:
    """Every auction with every bid of the same window."""
    for auction in records:
        if auction.seller is not None:
            for bid in records:
                if bid.price is not None:
                    yield key, auction.seller, bid.price


# -- what several queries share --------------------------------------------------------------------


def bids(events: DataFrame) -> DataFrame:
    return events.where("bid IS NOT NULL").select("bid.auction", "bid.bidder", "bid.price", "time")


def window_end(length: Duration) -> Column:
    """The end of the tumbling window that a record is in."""
    return sf.window("time", f"{micros(length)} microseconds")["end"]
