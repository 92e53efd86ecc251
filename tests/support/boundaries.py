"""Events of an auction house on the boundaries of the queries, and SQL that counts them."""

from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from lab.workloads.nexmark.events import SCHEMA, Auctions
from lab.workloads.numbered import MOMENT
from lab.workloads.rate import Rate
from tests.support.oracle import QUERIES

HOUSE: Final = Auctions(rate=Rate.parse("1k"), out_of_order=70, hot_auctions=1)  # one a millisecond
EDGE: Final = 500  # milliseconds; all windows begin and end at multiples of it
HIGHEST: Final = 10_000_000  # no price and no reserve is above it
BORDERS: Final = (9_999, 10_000, 999_999, 1_000_000)  # prices on both sides of the ranks' borders


def boundaries(count: int) -> pa.Table:
    """So many events, in the order in which they come, some of them changed.

    Prices are cut, so that many are the highest; some are on a rank's border. Around an edge,
    events take place at it or a microsecond before it; auctions at it are of the person at it, and
    are bid for at once. Auctions end at the moment of a bid, which is the highest for one of them.
    """
    rows: list[dict[str, Any]] = HOUSE.events(0, count).to_pylist()
    by_number = {row["event"]: row for row in rows}
    for number, row in sorted(by_number.items()):
        after = number % EDGE
        if 0 < after <= 10:
            row["time"] = moment(number - after)
        elif after >= EDGE - 10:
            row["time"] = moment(number - after + EDGE) - timedelta(microseconds=1)
        if auction := row["auction"]:
            auction["reserve"] = min(auction["reserve"], HIGHEST)
            if after <= 3:
                auction["seller"] = by_number[number - after]["person"]["id"]
            end = (auction["expires"] - moment(0)) // timedelta(milliseconds=50) * 50 + 70
            auction["expires"] = moment(end)
            if end in by_number:
                by_number[end]["bid"] |= {"auction": auction["id"], "price": HIGHEST}
        if bid := row["bid"]:
            bid["price"] = min(bid["price"], HIGHEST)
            if number % 25 == 24 and bid["price"] < HIGHEST:
                bid["price"] = BORDERS[number // 25 % len(BORDERS)]
            if after == 4:
                bid |= {"auction": by_number[number - 1]["auction"]["id"], "price": HIGHEST}
    return pa.Table.from_pylist(rows, SCHEMA)


def moment(number: int) -> datetime:
    """When event `number` takes place, as it is made."""
    (found,) = pa.array(HOUSE.times(pa.array([number]).to_numpy())).cast(MOMENT).to_pylist()
    assert isinstance(found, datetime)
    return found


def _several(query: str, column: str) -> str:
    return f"""
        SELECT "window" FROM ({QUERIES[query]})
        GROUP BY ALL HAVING count(DISTINCT {column}) > 1"""


def _together(column: str) -> str:
    return f"FROM winners a JOIN winners b USING ({column}, expires) WHERE a.id < b.id"


# By kind; rows are counted. `$batch` is how long the events of a batch take.
KINDS: Final = {
    "bids on an edge": "FROM bids WHERE epoch_us(time) % $slide = 0",
    "bids just before an edge": "FROM bids WHERE (epoch_us(time) + 1) % $slide = 0",
    "sellers who are new on an edge": """
        FROM persons p JOIN auctions a ON a.seller = p.id AND a.time = p.time
        WHERE epoch_us(p.time) % $length = 0""",
    "bids before their auction": """
        FROM bids b JOIN auctions a ON b.auction = a.id
        WHERE b.time < a.time AND b.price >= a.reserve""",
    "bids at the start of their auction that win it": """
        FROM bids b JOIN auctions a ON b.auction = a.id JOIN winners w USING (id)
        WHERE b.time = a.time AND b.price = w.price""",
    "bids at the end of their auction that would win it": """
        FROM bids b JOIN winners w ON b.auction = w.id
        WHERE b.time = w.expires AND b.price > w.price""",
    "reserves that are just reached": """
        FROM winners w JOIN auctions a USING (id) WHERE w.price = a.reserve""",
    "auctions with several highest bids": """
        SELECT w.id FROM winners w JOIN auctions a USING (id) JOIN bids b
            ON b.auction = a.id AND b.price = w.price AND b.time >= a.time AND b.time < a.expires
        GROUP BY ALL HAVING count(*) > 1""",
    "auctions of a category that end together": _together("category"),
    "auctions of a seller that end together": _together("seller"),
    "sellers of more than ten": "SELECT seller FROM winners GROUP BY ALL HAVING count(*) > 10",
    "auctions that close after their batch": """
        FROM winners w JOIN auctions a USING (id)
        WHERE window_end(w.expires, $batch) > window_end(a.time, $batch)""",
    "auctions that close with the stream": """
        FROM winners WHERE expires > (SELECT max(time) FROM events)""",
    "records that are just a gap apart, for all gaps": """
        SELECT 1 FROM (
            SELECT epoch_us(time) - lag(epoch_us(time)) OVER (PARTITION BY id ORDER BY time) AS gap
            FROM parts)
        WHERE gap IN (SELECT unnest(range(1, 5)) * $gap) HAVING count(DISTINCT gap) = 4""",
    "bids at midnight, of days as long as a window": """
        FROM bids WHERE epoch_us(time) % $length = 0""",
    "bids on all borders of ranks": f"""
        SELECT 1 FROM bids WHERE price IN {BORDERS}
        HAVING count(DISTINCT price) = {len(BORDERS)}""",
    "bids of a bidder that are just a gap apart": """
        SELECT 1 FROM (
            SELECT epoch_us(time) - lag(epoch_us(time)) OVER (PARTITION BY bidder ORDER BY time)
                AS gap
            FROM bids)
        WHERE gap = $gap""",
    "last bids of several at a moment": """
        SELECT 1 FROM bids JOIN (
            SELECT bidder, auction, max(time) AS time FROM bids GROUP BY ALL
        ) USING (bidder, auction, time)
        GROUP BY bidder, auction HAVING count(DISTINCT price) > 1""",
    "auctions whose tenth bid has the price of the next": """
        SELECT 1 FROM (
            SELECT auction, price,
                row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS place
            FROM bids)
        GROUP BY auction
        HAVING max(price) FILTER (place = 10) = max(price) FILTER (place = 11)""",
    "windows with several hottest auctions": _several("q5", "auction"),
    "windows with highest bids in several shards": _several("q7", "auction % 64"),
}
