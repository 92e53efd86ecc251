"""The running mean of a number for each key: in columns, by record, and in Spark's words."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

STATE: Final = "n long, total double"
MEANS: Final = "k long, mean double"


def running_mean(records: pa.Table, starts: Any, state: pa.Table) -> Any:
    """For `vectorised`, keyed by k: the mean of all x of each key, once an epoch."""
    n = state["n"].fill_null(0).to_numpy() + np.diff(starts, append=len(records))
    x = np.add.reduceat(records["x"].to_numpy(), starts)
    total = state["total"].fill_null(0).to_numpy() + x
    return {"n": n, "total": total}, {"k": state["k"], "mean": total / n}


class PandasMean(StatefulProcessor):
    """The same for `transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("mean", STATE)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        n, total = self._state.get() or (0, 0.0)
        for frame in rows:
            n, total = n + len(frame), total + float(frame.x.sum())
        self._state.update((n, total))
        yield pd.DataFrame({"k": key[0], "mean": [total / n]})

    def close(self) -> None:
        pass
