"""A shop: which orders are paid in time, what visitors do, and what sells best each minute."""

from pyspark.sql import DataFrame

import godwit as gw

ORDERS = """order_id long, customer string, department string, product string,
            price decimal(10, 2), ordered timestamp"""
PAYMENTS = "payment_id long, order_id long, method string, paid timestamp"
CLICKS = "customer string, page string, clicked timestamp"

Rows = DataFrame | str  # a streaming DataFrame to run the job; in a test, its columns
DELAY = "2 minutes"  # a record that is further behind the newest one is late, and dropped


def job(
    orders: Rows,
    payments: Rows,
    clicks: Rows,
    *,
    to_orders: gw.Sink,
    to_visits: gw.Sink,
    to_bestsellers: gw.Sink,
) -> gw.Job:
    """One query of three sources, five operators and three sinks."""
    ordered = gw.stream(orders, name="orders")

    # The bank may tell of a payment twice. An order without one in ten minutes comes out unpaid.
    payments_once = gw.stream(payments, name="payments").deduplicate(
        "payments", key="payment_id", time="paid", within="1 hour", delay=DELAY
    )
    paid = ordered.join(
        "paid",
        payments_once,
        on="order_id",
        how="left",
        within=("0 s", "10 minutes"),
        time=("ordered", "paid"),
        delay=DELAY,
    )

    # A visit ends when its customer has not clicked for five minutes.
    visits = gw.stream(clicks, name="clicks").aggregate(
        "visits",
        key="customer",
        window=gw.session("5 minutes"),
        time="clicked",
        delay=DELAY,
        clicks=gw.count(),
        entry=gw.first("page"),
    )

    # The sales of each product and minute; of these, the best of each department.
    sales = ordered.aggregate(
        "sales",
        key=["department", "product"],
        window=gw.tumbling("1 minute"),
        time="ordered",
        delay=DELAY,
        sold=gw.count(),
        revenue=gw.sum("price"),
    )
    bestsellers = sales.aggregate(
        "bestsellers",
        key="department",
        window=gw.tumbling("1 minute"),
        time="window_time",
        delay="0 s",
        top=gw.top(3, by="sold", of=["sold", "product", "revenue"]),
    )

    return gw.query(
        paid.to(to_orders),
        visits.to(to_visits),
        bestsellers.to(to_bestsellers),
    )
