"""What must have come out: asked of DuckDB, over the files that the job has read."""

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

# A file has the name of the minute in which its records were told. What is hours old by then is
# late; nothing else is older than the delay of the job.
_READ: Final = """
CREATE TABLE {name}_told AS SELECT *, {time} < strptime(
    parse_filename(filename, true), '%Y-%m-%dT%H-%M')::TIMESTAMPTZ - INTERVAL 2 MINUTE AS late
FROM read_json('{files}', filename = true, columns = {{{columns}}});
CREATE VIEW {name} AS SELECT * EXCLUDE (filename, late) FROM {name}_told WHERE NOT late
"""
_SOURCES: Final = {
    "orders": (
        "ordered",
        "order_id: 'BIGINT', customer: 'TEXT', department: 'TEXT', product: 'TEXT', "
        "price: 'DECIMAL(10, 2)', ordered: 'TIMESTAMPTZ'",
    ),
    "payments": (
        "paid",
        "payment_id: 'BIGINT', order_id: 'BIGINT', method: 'TEXT', paid: 'TIMESTAMPTZ'",
    ),
    "clicks": ("clicked", "customer: 'TEXT', page: 'TEXT', clicked: 'TIMESTAMPTZ'"),
}
_RESULTS: Final = {
    "orders": """
SELECT orders.*, payment_id, method, paid
FROM orders LEFT JOIN (SELECT DISTINCT * FROM payments) AS payment
ON orders.order_id = payment.order_id AND paid BETWEEN ordered AND ordered + INTERVAL 10 MINUTE
""",
    "visits": """
WITH gaps AS (
    SELECT *, clicked - lag(clicked) OVER visits >= INTERVAL 5 MINUTE AS begins
    FROM clicks WINDOW visits AS (PARTITION BY customer ORDER BY clicked)
), numbered AS (
    SELECT *, count(*) FILTER (begins) OVER (PARTITION BY customer ORDER BY clicked) AS visit
    FROM gaps
)
SELECT customer, min(clicked) AS window_start, max(clicked) + INTERVAL 5 MINUTE AS window_end,
    count(*) AS clicks, arg_min(page, clicked) AS entry
FROM numbered GROUP BY customer, visit
""",
    "bestsellers": """
WITH sales AS (
    SELECT department, product, date_trunc('minute', ordered) AS window_start,
        count(*) AS sold, sum(price) AS revenue
    FROM orders GROUP BY ALL
), places AS (
    SELECT *, row_number() OVER (
        PARTITION BY department, window_start ORDER BY sold DESC, product DESC) AS place
    FROM sales
)
SELECT department, window_start,
    list({'sold': sold, 'product': product, 'revenue': revenue} ORDER BY place) AS top
FROM places WHERE place <= 3 GROUP BY ALL
""",
}


class Truth:
    """The results that the records below a directory must have, beside those that were found."""

    def __init__(self, home: Path) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        for name, (time, columns) in _SOURCES.items():
            files = home / name / "*.json"
            self._database.execute(_READ.format(name=name, time=time, columns=columns, files=files))

    def late(self, source: str) -> int:
        """How many records of a source came too late."""
        return self._count(f"SELECT * FROM {source}_told WHERE late")

    def find(self, result: str, rows: pa.Table) -> tuple[int, int]:
        """Take a result as it was found; returns its rows, and how many are wrong or missing."""
        self._database.register(f"{result}_found", rows)
        true = f"({_RESULTS[result]})"
        columns = ", ".join(self._database.sql(true).columns)
        found = f"(SELECT {columns} FROM {result}_found)"
        wrong = [f"{found} EXCEPT ALL {true}", f"{true} EXCEPT ALL {found}"]
        return rows.num_rows, sum(map(self._count, wrong))

    def rows(self, query: str) -> list[tuple[str, ...]]:
        """The names of the columns of a query, and its rows, as texts."""
        rows = self._database.sql(query)
        names = tuple(rows.columns)
        return [names, *(tuple(map(str, row)) for row in rows.fetchall())]

    def _count(self, rows: str) -> int:
        return len(self._database.sql(rows))
