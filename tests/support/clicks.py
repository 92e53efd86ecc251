"""Clicks of users with a time, and what arrives at the end of a query over them."""

from datetime import UTC, datetime
from typing import Any

from tests.support.event_records import ZERO, second


def clicks(*times: float, user: str = "u") -> list[dict[str, Any]]:
    return [{"user": user, "at": second(time), "n": 1} for time in times]


class Arrived:
    """What arrives, by epoch; moments as seconds."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, rows: Any, epoch: int) -> None:
        self.epochs[epoch] = sorted(tuple(map(plain, row)) for row in rows.collect())

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for epoch in sorted(self.epochs) for row in self.epochs[epoch]]


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - ZERO).total_seconds()
    return value
