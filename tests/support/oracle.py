"""NEXMark's queries in batch SQL, computed by DuckDB over all events at once."""

from typing import Final

import duckdb
import pyarrow as pa

from lab.workloads.nexmark.sql_suite import CHANNEL, URL

VIEWS: Final = f"""
CREATE VIEW persons AS SELECT person.*, time FROM events WHERE person IS NOT NULL;
CREATE VIEW auctions AS SELECT auction.*, time FROM events WHERE auction IS NOT NULL;
CREATE VIEW bids AS SELECT bid.*, time FROM events WHERE bid IS NOT NULL;
CREATE VIEW winners AS
    SELECT * FROM (
        SELECT a.id, a.seller, a.category, a.expires, b.bidder, b.price,
               row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.time) AS place
        FROM auctions a JOIN bids b ON b.auction = a.id
        WHERE b.price >= a.reserve AND b.time >= a.time AND b.time < a.expires)
    WHERE place = 1;
CREATE VIEW visits AS SELECT *, {CHANNEL} AS channel, {URL} AS url FROM bids;
CREATE MACRO window_end(moment, length) AS
    make_timestamptz((epoch_us(moment) // length + 1) * length);
CREATE VIEW parts AS
    SELECT auction.id AS id, time, auction.seller AS seller, NULL AS price
    FROM events WHERE auction IS NOT NULL
    UNION ALL SELECT bid.auction, time, NULL, bid.price FROM events WHERE bid IS NOT NULL;
"""

COUNTS: Final = """
        count(*) AS total_bids,
        count(*) FILTER (price < 10000) AS rank1_bids,
        count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
        count(*) FILTER (price >= 1000000) AS rank3_bids,
        count(DISTINCT bidder) AS total_bidders,
        count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
        count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
        count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
        count(DISTINCT auction) AS total_auctions,
        count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
        count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
        count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions"""

QUERIES: Final = {
    "q1": "SELECT auction, bidder, 0.908 * price AS price, time FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction
        FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category, id AS auction, avg(price) OVER (
            PARTITION BY category ORDER BY expires, id ROWS UNBOUNDED PRECEDING) AS average
        FROM winners""",
    "q5": """
        WITH counts AS (
            SELECT unnest(range(1, $length // $slide + 1)) * $slide
                       + epoch_us(time) // $slide * $slide AS ends,
                   auction
            FROM bids),
        totals AS (SELECT ends, auction, count(*) AS bids FROM counts GROUP BY ALL)
        SELECT make_timestamptz(ends) AS "window", auction, bids FROM totals
        QUALIFY bids = max(bids) OVER (PARTITION BY ends)""",
    "q6": """
        SELECT seller, id AS auction, avg(price) OVER (
            PARTITION BY seller ORDER BY expires, id ROWS 9 PRECEDING) AS average
        FROM winners""",
    "q7": """
        SELECT window_end(time, $length) AS "window", auction, bidder, price FROM bids
        QUALIFY price = max(price) OVER (PARTITION BY window_end(time, $length))""",
    "q8": """
        SELECT p.id AS person, p.name, a.id AS auction, a.reserve,
            p.time AS left_time, window_end(p.time, $length) AS "window"
        FROM persons p JOIN auctions a ON a.seller = p.id
            AND window_end(a.time, $length) = window_end(p.time, $length)""",
    "nbq5": """
        WITH counts AS (
            SELECT unnest(range(1, $length // $slide + 1)) * $slide
                       + epoch_us(time) // $slide * $slide AS ends,
                   auction
            FROM bids)
        SELECT auction, make_timestamptz(ends) AS window_end, count(*) AS bids
        FROM counts GROUP BY ALL""",
    "nbqx session": """
        WITH begun AS (
            SELECT *, coalesce(epoch_us(time) - lag(epoch_us(time)) OVER w >= $gap, true) AS new
            FROM parts WINDOW w AS (PARTITION BY id ORDER BY time)),
        numbered AS (
            SELECT *, count(*) FILTER (new) OVER (PARTITION BY id ORDER BY time) AS session
            FROM begun)
        SELECT id AS auction, a.seller, b.price
        FROM numbered a JOIN numbered b USING (id, session)
        WHERE a.seller IS NOT NULL AND b.price IS NOT NULL""",
    "nbqx tumbling": """
        SELECT a.id AS auction, a.seller, b.price
        FROM auctions a JOIN bids b ON a.id = b.auction
            AND window_end(a.time, $length) = window_end(b.time, $length)""",
    "q9": "SELECT id AS auction, seller, category, bidder, price, expires FROM winners",
    "q11": """
        WITH begun AS (
            SELECT *, coalesce(epoch_us(time) - lag(epoch_us(time)) OVER w >= $gap, true) AS new
            FROM bids WINDOW w AS (PARTITION BY bidder ORDER BY time)),
        numbered AS (
            SELECT *, count(*) FILTER (new) OVER (PARTITION BY bidder ORDER BY time) AS session
            FROM begun)
        SELECT bidder, count(*) AS bids, min(time) AS window_start,
            make_timestamptz(max(epoch_us(time)) + $gap) AS window_end
        FROM numbered GROUP BY bidder, session""",
    "q13": """
        SELECT auction, bidder, price, time, value
        FROM bids JOIN (SELECT range AS key, 'value-' || range AS value FROM range($keys))
            ON auction % 10000 = key""",
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price, time, extra,
            CASE WHEN hour(time) >= 8 AND hour(time) <= 18 THEN 'dayTime'
                WHEN hour(time) <= 6 OR hour(time) >= 20 THEN 'nightTime'
                ELSE 'otherTime' END AS bid_time,
            length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bids WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""
        SELECT strftime(time, '%Y-%m-%d') AS day,{COUNTS}
        FROM bids GROUP BY day""",
    "q16": f"""
        SELECT channel, strftime(time, '%Y-%m-%d') AS day, max(strftime(time, '%H:%M')) AS minute,
        {COUNTS}
        FROM visits GROUP BY channel, day""",
    "q17": """
        SELECT auction, strftime(time, '%Y-%m-%d') AS day,
            count(*) AS total_bids,
            count(*) FILTER (price < 10000) AS rank1_bids,
            count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
            count(*) FILTER (price >= 1000000) AS rank3_bids,
            min(price) AS min_price,
            max(price) AS max_price,
            avg(price) AS avg_price,
            sum(price)::BIGINT AS sum_price
        FROM bids GROUP BY auction, day""",
    "q18": """
        SELECT bidder, auction, time, price FROM bids
        QUALIFY row_number() OVER (
            PARTITION BY bidder, auction ORDER BY time DESC, price DESC) = 1""",
    "q19": """
        SELECT auction, bidder, price, time, row_number() OVER (
            PARTITION BY auction ORDER BY price DESC, bidder DESC, time DESC) AS place
        FROM bids QUALIFY place <= 10""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.time, a.item, a.reserve, a.seller
        FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """
        SELECT auction, bidder, price, channel, CASE lower(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM visits WHERE channel_id <> ''""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM visits""",
}
# A result of these is of a key, and the newest one counts.
UPDATED: Final = {
    "q15": "day",
    "q16": "channel, day",
    "q17": "auction, day",
    "q18": "bidder, auction",
    "q19": "auction",
}


def answer(sql: str, events: pa.Table, **numbers: int) -> pa.Table:
    """The rows of a statement; lengths of time are in microseconds."""
    used = {name: number for name, number in numbers.items() if f"${name}" in sql}
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("events", events)
        database.execute(VIEWS)
        return database.sql(sql, params=used).to_arrow_table()


def newest(results: pa.Table, key: str) -> pa.Table:
    """The results of each key from the last epoch that had some of it."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("results", results)
        last = f"epoch = max(epoch) OVER (PARTITION BY {key})"
        return database.sql(f"SELECT * FROM results QUALIFY {last}").to_arrow_table()
