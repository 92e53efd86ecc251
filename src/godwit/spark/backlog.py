"""How far a query is behind its sources."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


def behind(query: StreamingQuery | None, ends: Sequence[str]) -> int | None:
    """Offsets that Spark's last report on the query knew of, beyond the `ends` of an epoch.

    Of Kafka these are records. None if there is no report, or no source tells, as files do not.
    """
    progress = query.lastProgress if query else None
    sources = json.loads(progress.json)["sources"] if progress else []
    if len(sources) != len(ends):  # a source that is read twice is reported once
        return None
    gaps = [
        gap(source["latestOffset"], json.loads(end))
        for source, end in zip(sources, ends, strict=True)
        if isinstance(source.get("latestOffset"), dict | int) and end != "-"
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
