"""A morning in the shop, made up: all that its systems tell, minute by minute.

They tell of things up to 90 seconds after they happened, and not in their order. Some orders are
never paid, or too late, and the bank tells of some payments twice. A few orders and clicks come two
hours late, from devices that had no network.
"""

import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

Record = dict[str, Any]

OPENING: Final = datetime(2026, 3, 2, 9, tzinfo=UTC)
SOURCES: Final = ("orders", "payments", "clicks")
ORDERS_A_MINUTE: Final = 120
VISITS_A_MINUTE: Final = 60
CUSTOMERS: Final = 1_500
NO_NETWORK: Final = 0.01  # of orders and clicks, once the shop has been open for ten minutes
DEPARTMENTS: Final = {
    "books": ("atlas", "cookbook", "diary", "novel", "thriller"),
    "garden": ("hose", "rake", "seeds", "shovel", "trowel"),
    "kitchen": ("kettle", "ladle", "mug", "pan", "plate"),
    "toys": ("blocks", "doll", "kite", "puzzle", "train"),
}
METHODS: Final = ("card", "invoice", "transfer")


class Day:
    """What is told in each minute until the shop closes; the same for each seed."""

    def __init__(self, minutes: int, seed: int = 18) -> None:
        self._random = random.Random(seed)
        self._orders, self._payments = count(1), count(1)
        self._told: dict[tuple[int, str], list[Record]] = defaultdict(list)
        for minute in range(minutes):
            for _ in range(ORDERS_A_MINUTE):
                self._order(self._after(60 * minute))
            for _ in range(VISITS_A_MINUTE):
                self._visit(self._after(60 * minute))
        for records in self._told.values():
            self._random.shuffle(records)

    def write(self, home: Path, minute: int) -> int:
        """Write what is told in a minute as a file for each source; returns how many records."""
        written = 0
        for source in SOURCES:
            records = self._told[minute, source]
            path = home / source / f"{clock(60 * minute):%Y-%m-%dT%H-%M}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            hidden = path.with_name(f".{path.name}")  # Spark sees it when it is complete
            hidden.write_text("".join(f"{json.dumps(record)}\n" for record in records))
            hidden.rename(path)
            written += len(records)
        return written

    def _order(self, at: float) -> None:
        rng, order = self._random, next(self._orders)
        department = rng.choice(list(DEPARTMENTS))
        (product,) = rng.choices(DEPARTMENTS[department], weights=(5, 4, 3, 2, 1))
        record = {
            "order_id": order,
            "customer": self._customer(),
            "department": department,
            "product": product,
            "price": f"{rng.randint(200, 9_999) / 100:.2f}",
        }
        self._tell("orders", record, "ordered", at)
        if rng.random() < 0.9:
            self._pay(order, at + rng.expovariate(1 / 180))

    def _pay(self, order: int, at: float) -> None:
        method = self._random.choice(METHODS)
        payment = {"payment_id": next(self._payments), "order_id": order, "method": method}
        told = self._after(at, 30)
        self._tell("payments", payment, "paid", at, told)
        if self._random.random() < 0.05:
            self._tell("payments", payment, "paid", at, self._after(told))

    def _visit(self, at: float) -> None:
        customer = self._customer()
        page = self._random.choice(("home", "search"))
        while self._random.random() < 0.85:
            self._tell("clicks", {"customer": customer, "page": page}, "clicked", at)
            at += self._random.expovariate(1 / 45)
            page = self._random.choice(list(DEPARTMENTS))

    def _tell(
        self, source: str, record: Record, time: str, at: float, told: float | None = None
    ) -> None:
        """Of what happens at a second, in the minute in which it becomes known."""
        told = self._after(at) if told is None else told
        if source != "payments" and told > 600 and self._random.random() < NO_NETWORK:
            at -= 7_200
        self._told[int(told // 60), source].append({**record, time: clock(at).isoformat()})

    def _customer(self) -> str:
        return f"c{self._random.randrange(CUSTOMERS):04}"

    def _after(self, at: float, most: float = 60) -> float:
        return at + self._random.uniform(0, most)


def clock(second: float) -> datetime:
    """The time so many seconds after the shop opened."""
    return OPENING + timedelta(milliseconds=round(1_000 * second))
