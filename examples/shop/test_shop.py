"""The job of the shop, tested without Spark: the same function that `make shop` runs."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import godwit as gw
from examples.shop.job import CLICKS, ORDERS, PAYMENTS, job
from godwit.testing import Simulation

TO_ORDERS, TO_VISITS, TO_BESTSELLERS = range(3)  # the sinks, in the order of gw.query


@pytest.fixture
def shop() -> Simulation:
    return Simulation(
        job(
            ORDERS,
            PAYMENTS,
            CLICKS,
            to_orders=gw.files("orders"),  # a simulation writes nothing there
            to_visits=gw.files("visits"),
            to_bestsellers=gw.files("bestsellers"),
        )
    )


def at(minutes: float) -> datetime:
    return datetime(2026, 3, 2, 9, tzinfo=UTC) + timedelta(minutes=minutes)


def order(number: int, minutes: float, product: str = "novel") -> Mapping[str, Any]:
    return {"order_id": number, "department": "books", "product": product, "ordered": at(minutes)}


def payment(number: int, order: int, minutes: float) -> Mapping[str, Any]:
    return {"payment_id": number, "order_id": order, "paid": at(minutes)}


def click(customer: str, page: str, minutes: float) -> Mapping[str, Any]:
    return {"customer": customer, "page": page, "clicked": at(minutes)}


def paid(shop: Simulation) -> dict[int, datetime | None]:
    """When each order was paid."""
    return {row["order_id"]: row["paid"] for row in shop.outputs(sink=TO_ORDERS)}


def test_an_order_is_paid_within_ten_minutes_or_comes_out_unpaid(shop: Simulation) -> None:
    shop.feed(
        orders=[order(1, 0), order(2, 0), order(3, 0)],
        payments=[payment(1, order=1, minutes=10), payment(2, order=2, minutes=10.1)],
    )
    assert paid(shop) == {1: at(10)}
    shop.finish()
    assert paid(shop) == {1: at(10), 2: None, 3: None}


def test_a_payment_that_the_bank_tells_twice_pays_once(shop: Simulation) -> None:
    shop.feed(orders=[order(1, 0)], payments=[payment(1, order=1, minutes=1)])
    shop.feed(payments=[payment(1, order=1, minutes=1)])
    shop.finish()
    assert len(shop.outputs(sink=TO_ORDERS)) == 1


def test_a_visit_ends_after_five_minutes_without_a_click(shop: Simulation) -> None:
    clicks = [click("ann", "home", 0), click("ann", "toys", 4.9), click("ann", "search", 9.9)]
    shop.feed(clicks=clicks[::-1])  # in whatever order they come
    shop.finish()
    visits = [(row["entry"], row["clicks"]) for row in shop.outputs(sink=TO_VISITS)]
    assert sorted(visits) == [("home", 2), ("search", 1)]


def test_the_three_best_products_of_a_minute(shop: Simulation) -> None:
    sold = ["novel", "atlas", "atlas", "diary", "novel", "atlas", "cookbook", "diary"]
    shop.feed(orders=[order(number, 0.5, product) for number, product in enumerate(sold)])
    shop.feed(orders=[order(99, 5, "thriller")])
    shop.feed()  # the watermark has moved, and the first minute closes
    (first,) = shop.outputs(sink=TO_BESTSELLERS)
    assert first["window_start"] == at(0)
    assert [(one["product"], one["sold"]) for one in first["top"]] == [
        ("atlas", 3),
        ("novel", 2),
        ("diary", 2),
    ]


def test_nothing_changes_when_the_job_moves_and_crashes(shop: Simulation) -> None:
    """Payments come in an epoch each, and in between state moves and the process ends."""
    shop.feed(orders=[order(number, 0) for number in range(8)])
    for number in range(8):
        shop.feed(payments=[payment(number, order=number, minutes=2 * number)])
        if number == 1:
            for name in ("payments", "paid"):
                shop.migrate(4, operator=name, strategy="batched:8")
        if number == 4:
            shop.restart()
    shop.finish()
    assert paid(shop) == {number: at(2 * number) if number <= 5 else None for number in range(8)}


def test_a_sale_that_is_hours_late_does_not_count(shop: Simulation) -> None:
    for number, minutes in enumerate([0, 120, 121, 0]):
        shop.feed(orders=[order(number, minutes)])
    shop.finish()
    sold = {row["window_start"]: row["top"][0]["sold"] for row in shop.outputs(sink=TO_BESTSELLERS)}
    assert sold == {at(0): 1, at(120): 1, at(121): 1}
