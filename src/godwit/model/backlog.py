"""How far a query is behind its sources, by the offsets that Spark tells."""

import json
from collections.abc import Iterator, Sequence
from typing import Any


def unread_offsets(latest: Sequence[Any], ends: Sequence[str]) -> int | None:
    """Offsets up to the `latest` of each source, beyond the `ends` of an epoch, which are JSON.

    Of Kafka these are records. None if no source tells, as files do not.

    >>> unread_offsets([{"clicks": {"0": 120}}, None], ['{"clicks": {"0": 100}}', "-"])
    20
    """
    if len(latest) != len(ends):  # a source that is read twice is reported once
        return None
    gaps = [
        gap(offset, json.loads(end))
        for offset, end in zip(latest, ends, strict=True)
        if isinstance(offset, dict | int) and end != "-"
    ]
    return sum(gaps) if gaps else None


def gap(latest: Any, end: Any) -> int:
    """What two offsets differ by, number by number, as of Kafka's topics and partitions.

    >>> gap({"clicks": {"0": 120, "1": 80}}, {"clicks": {"0": 100, "1": 80}})
    20
    """
    reached = dict(_numbers(end))
    return sum(max(0, value - reached.get(path, 0)) for path, value in _numbers(latest))


def _numbers(offset: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(offset, dict):
        for name, value in offset.items():
            yield from _numbers(value, (*path, name))
    elif isinstance(offset, int):
        yield path, offset
