"""A shop is open for three quarters of an hour, in one minute, and its job moves meanwhile.

    python -m examples.shop

Orders, payments and clicks come in as files. The job writes two Delta tables and one of PostgreSQL:
in the database that the environment variable SHOP_DSN names, or in a server that ends with this
program. At the end all tables are read back and compared with what DuckDB finds.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import godwit as gw
from examples.shop.day import Day, clock
from examples.shop.job import CLICKS, ORDERS, PAYMENTS, job
from examples.shop.truth import Truth
from godwit.spark.session import session
from tests.support import postgres

MINUTES, SECONDS_A_MINUTE = 45, 1.0
WARM_UP = 3  # minutes, before which nothing is late
MOVE_AT, TELL_EVERY = 15, 3
WORKERS, MORE_WORKERS = 2, 4
SHOWN = {  # the results, and what of them is worth a look
    "orders": """SELECT order_id, customer, product, price, strftime(ordered, '%X') AS ordered,
        coalesce(strftime(paid, '%X'), 'not in time') AS paid
        FROM orders_found ORDER BY order_id LIMIT 5""",
    "visits": """SELECT customer, strftime(window_start, '%X') AS began, entry, clicks
        FROM visits_found ORDER BY clicks DESC, customer LIMIT 3""",
    "bestsellers": """SELECT strftime(window_start, '%H:%M') AS minute, department,
        array_to_string([one.product || ' ' || one.sold FOR one IN top], ', ') AS top
        FROM bestsellers_found ORDER BY window_start DESC, department LIMIT 4""",
}
DROPPING = {"orders": ("paid", "sales"), "payments": ("payments",), "clicks": ("visits",)}


def main() -> None:
    began, home = time.monotonic(), Path(mkdtemp(prefix="godwit-shop-"))
    with database() as dsn:
        say("starting Spark on two cores")
        with session("local[2]", {"spark.sql.shuffle.partitions": "2"}) as spark:
            dropped = run(spark, home, dsn)
        say("reading all tables back")
        right = check(home, dsn, dropped)
    say(f"\nit took {time.monotonic() - began:.0f} s; input, Delta tables and checkpoint: {home}")
    if os.environ.get("SHOP_DSN"):
        say(f"the orders are in the schema {schema(home)} of your database")
    say(f"what became of the query: .venv/bin/godwit history {home / 'checkpoint'}")
    if not right:
        sys.exit(1)


@contextmanager
def database() -> Iterator[str | None]:
    """How to connect to PostgreSQL, if there is one."""
    if given := os.environ.get("SHOP_DSN"):
        try:
            postgres.query(given, "SELECT 1")
        except adbc.Error as error:
            sys.exit(f"the database that SHOP_DSN names cannot be used: {error}")
        yield given
    elif programs := postgres.programs():
        say("starting a PostgreSQL server on a socket of its own")
        with postgres.server(programs) as socket:
            yield f"postgresql://godwit@/postgres?host={socket}"
    else:
        say(f"{postgres.INSTALL}, or name a database in SHOP_DSN. Now all tables are Delta's")
        yield None


def run(spark: SparkSession, home: Path, dsn: str | None) -> Counter[str]:
    """Run the job while the shop is open; returns how many records each operator has dropped."""
    day, dropped = Day(MINUTES), Counter[str]()
    records = day.write(home / "input", 0)

    def count_late(report: gw.EpochReport) -> None:
        dropped.update({name: one.late for name, one in report.operators.items()})

    def read(source: str, columns: str) -> DataFrame:
        return spark.readStream.schema(columns).json(str(home / "input" / source))

    query = job(
        read("orders", ORDERS),
        read("payments", PAYMENTS),
        read("clicks", CLICKS),
        to_orders=orders_sink(home, dsn),
        to_visits=gw.delta(str(home / "visits")),
        to_bestsellers=gw.delta(str(home / "bestsellers")),
    ).start(home / "checkpoint", workers=WORKERS, listener=count_late)
    say(f"the shop is open: {len(query.operators)} operators, each with {WORKERS} workers")
    migration: gw.Migration | None = None
    for minute in range(1, MINUTES):
        if minute <= WARM_UP:
            await_epoch(query, minute - 1)
        query.await_termination(SECONDS_A_MINUTE)  # raises what fails it
        records += day.write(home / "input", minute)
        if minute == MOVE_AT:
            migration = query.migrate(MORE_WORKERS)
            say(f"       the state of all operators moves to {MORE_WORKERS} workers each")
        if minute % TELL_EVERY == 0:
            say(f"{clock(60 * minute):%H:%M}  {records:,} records in, epoch {query.epoch} is done")
            tell(migration)
    say("the shop is closed: the last visits end, and so does the wait for payments")
    closed = time.monotonic()
    with ThreadPoolExecutor() as aside:
        ending = aside.submit(query.finish)
        while wait([ending], timeout=2).not_done:
            say(f"       epoch {query.epoch} is done, {time.monotonic() - closed:.0f} s later")
    ending.result()
    tell(migration)
    return dropped


def await_epoch(query: gw.Query, epoch: int) -> None:
    began = time.monotonic()
    while not query.await_epoch(epoch, timeout=2):
        query.await_termination(0)  # raises what fails it
        say(f"       epoch {epoch} has been running for {time.monotonic() - began:.0f} s")


def tell(migration: gw.Migration | None) -> None:
    """How far the state has moved, once it was asked to."""
    if migration is not None:
        now = migration.progress
        say(f"       {now.arrived:,} of {now.bins:,} bins have moved: {now.outcome}")


def orders_sink(home: Path, dsn: str | None) -> gw.Sink:
    if dsn is None:
        return gw.delta(str(home / "orders"), key="order_id")
    postgres.execute(dsn, f"CREATE SCHEMA {schema(home)}")
    return gw.postgres(dsn, f"{schema(home)}.orders", key="order_id")


def schema(home: Path) -> str:
    """That of a run of its own: nothing of yours is in the way, and nothing of it gets lost."""
    return home.name.replace("-", "_")


def check(home: Path, dsn: str | None, dropped: Counter[str]) -> bool:
    """Read all tables back, show some of their rows, and compare them with the truth."""
    truth, wrong = Truth(home / "input"), 0
    for result, query in SHOWN.items():
        where = "Delta" if result != "orders" or dsn is None else "PostgreSQL"
        table = read_back(home, dsn, result)
        count, differ = truth.find(result, table)
        say(f"\n{result}, {where}: {count:,} rows, {differ:,} wrong or missing")
        rows = truth.rows(query)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            say("  ".join(["", *map(str.ljust, row, widths)]).rstrip())
        wrong += differ
    say("\nrecords that came hours late:")
    for source, operators in DROPPING.items():
        late = truth.late(source)
        for operator in operators:
            say(f"  {source}: {late:,}; dropped by '{operator}': {dropped[operator]:,}")
            wrong += late != dropped[operator]
    say(f"\nall of it is exactly right: {not wrong}")
    return not wrong


def read_back(home: Path, dsn: str | None, result: str) -> pa.Table:
    if result != "orders" or dsn is None:
        return DeltaTable(str(home / result)).to_pyarrow_table()
    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {schema(home)}.orders")
        rows = cursor.fetch_arrow_table()
    price = rows.column("price").cast(pa.string()).cast(pa.decimal128(10, 2))  # ADBC has a text
    return rows.set_column(rows.column_names.index("price"), "price", price)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the query and all servers have ended")
