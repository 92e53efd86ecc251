"""What a state table looks like: identity, values, and the columns of its files."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

HASH = "_hash"
OP = "_op"

# The three kinds of row of a delta.
UPSERT, DELETE, CLEAR = 0, 1, 2


@dataclass(frozen=True)
class TableSpec:
    """One state table of an operator: a row is identified by (hash, key, sub-key).

    A value has no sub-key; a list's sub-key is the element's position, a map's the map's key.
    `CLEAR` removes all rows of a key that are older than the file it stands in; `DELETE` one row.
    """

    name: str
    key: pa.Schema
    sub: pa.Schema
    value: pa.Schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a file: hash, operation, key, sub-key, value."""
        head = [pa.field(HASH, pa.uint64()), pa.field(OP, pa.int8())]
        return pa.schema([*head, *self.key, *self.sub, *self.value])
