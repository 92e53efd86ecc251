"""How many requests went to an object store, by what they cost."""

from dataclasses import asdict, astuple, dataclass
from typing import Final, Self


@dataclass(frozen=True, slots=True)
class StoreRequests:
    """Requests to object stores by kind: those that write, read, list and delete.

    >>> StoreRequests(puts=5, gets=3) - StoreRequests(puts=2)
    StoreRequests(puts=3, gets=3, lists=0, deletes=0)
    """

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def to_json(self) -> dict[str, int]:
        return asdict(self)


NO_REQUESTS: Final = StoreRequests()
