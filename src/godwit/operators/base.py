"""What an operator is to the engine: state tables, and a function from records to changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from godwit.model.description import OperatorDescription
from godwit.state.table import TableSpec
from godwit.state.timed import WatermarkSpan

Hashes = npt.NDArray[np.uint64]


class TableView(Protocol):
    """The committed rows of one state table as of the epoch before, readable by key."""

    @property
    def spec(self) -> TableSpec: ...

    def get(self, hashes: Hashes, keys: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Table]:
        """For distinct keys in hash order: which have a value, and the value columns, else null.

        In a table with a sub-key, `keys` has its columns, too. That is for tables of which nothing
        is cleared, and fast where few rows share a hash."""
        ...

    def scan(self, hashes: Hashes, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """All rows of distinct keys in hash order: per row the index of its key, and sub-key and
        value columns; rows in the order of (key index, sub-key)."""
        ...

    def between(self, lows: Hashes, highs: Hashes) -> pa.Table:
        """All rows with a hash from `lows[i]` to `highs[i]`, in hash order; such a range is in one
        segment, and they ascend without an overlap."""
        ...


class TimedView(Protocol):
    """The committed rows of a table in the order of time."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def span(self) -> WatermarkSpan: ...

    def due(self) -> pa.Table:
        """The rows that are due in this epoch, in the order of their moments."""
        ...


class Horizon(NamedTuple):
    """A record is late once the watermark has reached its `column` and `after` microseconds.

    With a `slide`, there is a copy of a record for each of its windows, which begin so far apart:
    it is late if that of its last window is, which stands for it.
    """

    column: str
    after: int = 0
    slide: int | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What one worker's epoch did: rows for each state table (in hash order), and outputs."""

    deltas: Mapping[str, pa.Table] = field(default_factory=dict)
    outputs: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Prefold:
    """How records may be folded before they reach their worker; the outcome is the same.

    A folded row stands for records that are equal in the columns `by`, the key's among them, and of
    which all are late or none is. It has what each of `partials`, expressions of Spark's SQL,
    computes of them, by column; the greatest time, if the operator has a delay; and in `_records`
    the number of its records. `operator` takes such rows instead of records.
    """

    by: Sequence[str]
    partials: Mapping[str, str]
    operator: "Operator"


@runtime_checkable
class Lagging(Protocol):
    """What an operator may have besides: outputs with times before its watermark."""

    @property
    def lag(self) -> int:
        """How far before, in microseconds, at the most."""
        ...


@runtime_checkable
class Operator(Protocol):
    """A deterministic function of (state, records), data-parallel by key. It must pickle.

    `ordered` operators get the records of a worker sorted by (hash, key, time, content).
    """

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> pa.Schema: ...
    @property
    def tables(self) -> tuple[TableSpec, ...]: ...
    @property
    def input(self) -> pa.Schema:
        """The input columns that it reads; the others are not sent to workers."""
        ...

    @property
    def output(self) -> pa.Schema: ...
    @property
    def ordered(self) -> bool: ...
    @property
    def time(self) -> str | None:
        """The column that orders a key's records before their content does."""
        ...

    @property
    def delay(self) -> int | None:
        """How far, in microseconds, `time` may be behind the newest seen; None: it has no
        watermark."""
        ...

    @property
    def horizon(self) -> Horizon:
        """When a record is late."""
        ...

    @property
    def inputs(self) -> int:
        """With several inputs, the column `_input` of a record says which one it is from."""
        ...

    @property
    def prefold(self) -> Prefold | None:
        """How its records may be folded before; None: it has to see them all."""
        ...

    def describe(self) -> OperatorDescription:
        """What a restart compares: kind, key, and sub-key and value of each table."""
        ...

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        """Apply the records of one worker and epoch; `hashes[i]` belongs to record i.

        An operator with tables in the order of time is called in every epoch, others in those in
        which a worker has records.
        """
        ...
