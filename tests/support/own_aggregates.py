"""Aggregates as a user writes them: the one of the docs, and one that needs the records."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from doctest import DocTestParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import godwit as gw

_PAGE = Path(__file__).parents[2] / "docs" / "guide" / "aggregates.md"


def variance_source() -> str:
    """The definition of the docs' `Variance`, as a program would have it."""
    parts = []
    for example in DocTestParser().get_examples(_PAGE.read_text()):
        parts.append(example.source)
        if "class Variance" in example.source:
            break
    return "\n".join(parts)


def variance(column: str) -> gw.Aggregate:
    """The docs' `Variance`, of a module of its own, so that it pickles."""
    module = sys.modules.get("documented_variance")
    if module is None:
        module = sys.modules["documented_variance"] = ModuleType("documented_variance")
        exec(variance_source(), module.__dict__)
    made: gw.Aggregate = module.__dict__["Variance"](column)
    return made


@dataclass(frozen=True)
class TopThree(gw.Aggregate):
    """The three largest values, largest first; Spark's SQL has nothing of the kind."""

    column: str

    @property
    def columns(self) -> Sequence[str]:
        return (self.column,)

    def state(self, input: gw.AggregateInput) -> Mapping[str, pa.DataType]:
        return {"": self.output(input)}

    def output(self, input: gw.AggregateInput) -> pa.DataType:
        return pa.list_(input.type(self.column))

    def fold(self, records: gw.GroupedRecords, state: Sequence[pa.Array]) -> Sequence[pa.Array]:
        (old,), new = state, records.column(self.column)
        parents: Any = pc.list_parent_indices(old).to_numpy()
        groups = np.concatenate([parents, np.repeat(np.arange(len(old)), records.sizes)])
        both = pa.table({"group": groups, "value": pa.concat_arrays([old.flatten(), new])})
        both = both.filter(pc.is_valid(both.column("value")))
        both = both.sort_by([("group", "ascending"), ("value", "descending")]).combine_chunks()
        groups = both.column("group").to_numpy()
        rank = np.arange(len(groups)) - np.searchsorted(groups, groups)
        top = both.filter(pa.array(rank < 3)).combine_chunks()
        sizes = np.bincount(top.column("group").to_numpy(), minlength=len(old))
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        values = pa.concat_arrays([*top.column("value").chunks, new.slice(0, 0)])
        return [pa.ListArray.from_arrays(offsets, values)]
