"""The same questions in Spark's own words."""

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from lab.workloads.counts import random_ids
from lab.workloads.nexmark.queries import bids

COUNTS: Final = "id long, n long"


def count_by_group(events: DataFrame, keys: int) -> DataFrame:
    """How often has each id come? By `groupBy`."""
    return random_ids(events, keys).groupBy("id").count()


def count_by_group_state(events: DataFrame, keys: int) -> DataFrame:
    """How often has each id come? By `applyInPandasWithState`."""
    groups = random_ids(events, keys).groupBy("id")
    return groups.applyInPandasWithState(
        count_group, COUNTS, "n long", "update", GroupStateTimeout.NoTimeout
    )


def count_group(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    before = state.get[0] if state.exists else 0
    total = before + sum(len(frame) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"id": key[0], "n": range(before + 1, total + 1)})


def count_by_pandas(events: DataFrame, keys: int) -> DataFrame:
    """How often has each id come? By `transformWithStateInPandas`."""
    groups = random_ids(events, keys).groupBy("id")
    return groups.transformWithStateInPandas(PandasCounter(), COUNTS, "Update", "None")


def count_by_rows(events: DataFrame, keys: int) -> DataFrame:
    """How often has each id come? By `transformWithState`."""
    groups = random_ids(events, keys).groupBy("id")
    return groups.transformWithState(RowCounter(), COUNTS, "Update", "None")


class PandasCounter(StatefulProcessor):
    """Counts the records of a key, by pandas frames."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        found = self._count.get()
        before = found[0] if found else 0
        total = before + sum(len(frame) for frame in rows)
        self._count.update((total,))
        yield pd.DataFrame({"id": key[0], "n": range(before + 1, total + 1)})

    def close(self) -> None:
        pass


class RowCounter(StatefulProcessor):
    """Counts the records of a key, by rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        found = self._count.get()
        count = found[0] if found else 0
        for _ in rows:
            count += 1
            yield Row(id=key[0], n=count)
        self._count.update((count,))

    def close(self) -> None:
        pass


def sellers(events: DataFrame) -> DataFrame:
    """Query 3 by a join of two streams, which keeps both for ever."""
    persons = events.where("person.state IN ('OR', 'ID', 'CA')").select("person.*")
    auctions = events.where("auction.category = 10").select("auction.*")
    auctions = auctions.selectExpr("id AS auction", "seller")
    joined = persons.join(auctions, persons.id == auctions.seller)
    return joined.select("name", "city", "state", "auction")


def bids_by_window(events: DataFrame, length: str) -> DataFrame:
    """How many bids has each auction in each tumbling window? By `groupBy` over windows."""
    timed = bids(events).withWatermark("time", "0 seconds")
    return timed.groupBy("auction", sf.window("time", length)).count()
