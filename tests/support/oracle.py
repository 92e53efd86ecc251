"""NEXMark's queries in batch SQL, computed by DuckDB over all events at once."""

from typing import Final

import duckdb
import pyarrow as pa

VIEWS: Final = """
CREATE VIEW persons AS SELECT person.*, time FROM events WHERE person IS NOT NULL;
CREATE VIEW auctions AS SELECT auction.*, time FROM events WHERE auction IS NOT NULL;
CREATE VIEW bids AS SELECT bid.*, time FROM events WHERE bid IS NOT NULL;
CREATE VIEW winners AS
    SELECT * FROM (
        SELECT a.id, a.seller, a.category, a.expires, b.price,
               row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.time) AS place
        FROM auctions a JOIN bids b ON b.auction = a.id
        WHERE b.price >= a.reserve AND b.time >= a.time AND b.time < a.expires)
    WHERE place = 1;
CREATE MACRO window_end(moment, length) AS
    make_timestamptz((epoch_us(moment) // length + 1) * length);
CREATE VIEW parts AS
    SELECT auction.id AS id, time, auction.seller AS seller, NULL AS price
    FROM events WHERE auction IS NOT NULL
    UNION ALL SELECT bid.auction, time, NULL, bid.price FROM events WHERE bid IS NOT NULL;
"""

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
        SELECT DISTINCT p.id AS person, p.name, window_end(p.time, $length) AS "window"
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
    "nbqx": """
        WITH gaps AS (SELECT unnest(range(1, 5)) * $gap AS gap),
        begun AS (
            SELECT *, coalesce(epoch_us(time) - lag(epoch_us(time)) OVER w >= gap, true) AS new
            FROM parts, gaps WINDOW w AS (PARTITION BY id, gap ORDER BY time)),
        numbered AS (
            SELECT *, count(*) FILTER (new) OVER (PARTITION BY id, gap ORDER BY time) AS session
            FROM begun)
        SELECT 'session ' || gap // 1000 || ' ms' AS "window", id AS auction, a.seller, b.price
        FROM numbered a JOIN numbered b USING (id, gap, session)
        WHERE a.seller IS NOT NULL AND b.price IS NOT NULL
        UNION ALL SELECT 'tumbling ' || $length // 1000 || ' ms', a.id, a.seller, b.price
        FROM auctions a JOIN bids b ON a.id = b.auction
            AND window_end(a.time, $length) = window_end(b.time, $length)""",
}


def answer(sql: str, events: pa.Table, **lengths: int) -> pa.Table:
    """The rows of a statement; lengths are in microseconds."""
    used = {name: length for name, length in lengths.items() if f"${name}" in sql}
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("events", events)
        database.execute(VIEWS)
        return database.sql(sql, params=used).to_arrow_table()
