"""In which order two processes run tests that take minutes, seconds and milliseconds."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def shared_out(starting: Sequence[T], asking: Sequence[T], others: Sequence[T]) -> list[T]:
    """Tests in an order that keeps two processes busy to the end, with `-n 2 --dist worksteal`.

    Each gets a half, and who is done takes the last half of what the other has left. So one begins
    with the tests that start a Spark of their own, and one with those that ask for the session
    that is shared, which it alone starts. Behind both are the others, of milliseconds each.

    >>> "".join(shared_out("AB", "abc", "-" * 7))
    'AB----abc---'
    """
    ahead = max(0, (len(starting) + len(asking) + len(others)) // 2 - len(starting))
    return [*starting, *others[:ahead], *asking, *others[ahead:]]
