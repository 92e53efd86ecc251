"""Streams that end in sinks as one query: what Spark streams of them, the frames of an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations
from types import TracebackType
from typing import Final, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.model.graph import Graph, Outlet, Parents
from godwit.operators.base import Operator
from godwit.operators.late import KeepingLate
from godwit.spark.logical_plan import source_names
from godwit.spark.node import Later, LateRecords, Node, Source, walk
from godwit.spark.sinks.kafka import check_ids
from godwit.spark.sinks.sink import Maker, Placed, Sink
from godwit.spark.types import to_spark

INLET: Final = "_inlet"


@dataclass(frozen=True)
class Dataflow:
    """Streams that end in sinks, and all that leads to them.

    A node is *streamed* if Spark's own plan of the streaming query computes it: before the first
    operator, and as far as no stream is used twice. The last of these on each way is an *inlet*: of
    it there are rows in the batch of an epoch.
    """

    ends: tuple[tuple[Node, Sink], ...]

    @cached_property
    def outlets(self) -> tuple[tuple[Node, Sink], ...]:
        """The ends, and behind them the late records of operators that have a sink for these."""
        late = (
            (Node(LateRecords(), (node,), _late_columns(node)), node.late)
            for node in self.nodes
            if node.late is not None
        )
        return (*self.ends, *late)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(walk(*(node for node, _ in self.ends)))

    @cached_property
    def operators(self) -> dict[str, Node]:
        """By name, behind those that they depend on."""
        return {
            node.step.name: node for node in self.nodes if isinstance(node.step, Operator | Later)
        }

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if isinstance(node.step, Source))

    @cached_property
    def graph(self) -> Graph:
        """The same for the log."""
        numbers: dict[Node, tuple[int, ...]] = {}
        names: list[str] = []
        idle_after: dict[int, int] = {}
        for node in self.sources:
            assert isinstance(node.step, Source)
            given = node.step.name
            told = source_names(node.rows) if node.rows is not None else ["a schema"]
            numbers[node] = tuple(range(len(names), len(names) + len(told)))
            names += [given] if given and len(told) == 1 else told
            if node.step.idle_after is not None:
                idle_after |= dict.fromkeys(numbers[node], node.step.idle_after)
        return Graph(
            {
                name: tuple(self._parents(one, numbers) for one in _ways_in(node))
                for name, node in self.operators.items()
            },
            tuple(
                Outlet(describe(sink), self.behind(node), isinstance(node.step, LateRecords))
                for node, sink in self.outlets
            ),
            tuple(names),
            idle_after,
        )

    def behind(self, node: Node) -> tuple[str, ...]:
        """The operators whose outputs a node is made of."""
        return self._parents(node, {}).operators

    def _parents(self, node: Node, sources: Mapping[Node, tuple[int, ...]]) -> Parents:
        names, numbers = dict[str, None](), dict[int, None]()
        stack = [node]
        while stack:
            one = stack.pop()
            if isinstance(one.step, Operator | Later):
                names[one.step.name] = None
            else:
                numbers |= dict.fromkeys(sources.get(one, ()))
                stack += reversed(one.inputs)
        return Parents(tuple(names), tuple(numbers))

    @cached_property
    def inlets(self) -> tuple[Node, ...]:
        uses = Counter(input for node in self.nodes for input in node.inputs)
        streamed = set[Node]()
        for node in self.nodes:
            alone = all(one in streamed and uses[one] == 1 for one in node.inputs)
            if not node.is_operator and alone:
                streamed.add(node)
        passed = {one for node in streamed for one in node.inputs}
        return tuple(node for node in self.nodes if node in streamed and node not in passed)

    @cached_property
    def is_read_twice(self) -> bool:
        """Do operators read the batch of an epoch more than once between them?"""
        reads = Counter[Node]()
        for node in reversed(self.nodes):
            ways = 1 if node.is_operator else reads[node]
            for input in node.inputs:
                reads[input] += ways
        return sum(reads[inlet] for inlet in self.inlets) > 1

    @cached_property
    def rows(self) -> DataFrame:
        """One streaming DataFrame with the rows of all inlets."""
        frames = [inlet.rows for inlet in self.inlets]
        first, *others = [rows for rows in frames if rows is not None]
        if not others:
            return first
        tagged = [_tagged(number, rows) for number, rows in enumerate([first, *others])]
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), tagged)

    def split(self, batch: DataFrame) -> dict[Node, DataFrame]:
        """The rows of each inlet in a batch of `rows`."""
        if len(self.inlets) == 1:
            return {self.inlets[0]: batch}
        return {
            inlet: batch.where(sf.col(INLET) == number).select(
                *(
                    sf.col(_column(number, place)).alias(field.name)
                    for place, field in enumerate(inlet.schema or ())
                )
            )
            for number, inlet in enumerate(self.inlets)
        }

    def check(self) -> None:
        """Refuse what cannot be one query."""
        names = Counter(
            node.step.name for node in self.nodes if isinstance(node.step, Operator | Later)
        )
        for name, count in names.items():
            if count > 1:
                raise ConfigError(
                    f"the query has two operators '{name}', and the name is an operator's "
                    "identity: name one of them differently"
                )
        for (_, sink), (_, other) in combinations(self.outlets, 2):
            if (
                isinstance(sink, Placed)
                and isinstance(other, Placed)
                and sink.place == other.place
                and (sink == other or not isinstance(sink, Maker))  # which tells it at the start
            ):
                raise ConfigError(
                    f"two streams end in {sink.place}; name another place for one of them"
                )
        check_ids(sink for _, sink in self.outlets)
        for node, sink in self.ends:
            if self._parents(node, dict.fromkeys(self.sources, (0,))).sources:
                raise ConfigError(
                    f"what goes to {describe(sink)} is in part not behind an operator; only what "
                    "operators put out is delivered exactly once"
                )
        sources = [node for node in self.nodes if isinstance(node.step, Source)]
        if len({node.rows is None for node in sources}) > 1:
            raise ConfigError("one input is a DataFrame and another a schema; make all the same")
        sessions = [node.rows.sparkSession for node in sources if node.rows is not None]
        for one in sessions[1:]:
            if not one._jsparkSession.equals(sessions[0]._jsparkSession):
                raise ConfigError(
                    "its streams are of two Spark sessions; read all of them with the same session"
                )


class Frames:
    """The DataFrames of an epoch, each made once. Leave it to let go what it has cached."""

    def __init__(self, known: Mapping[Node, DataFrame], cached: DataFrame | None = None) -> None:
        self._known = dict(known)
        self._cached = cached

    @classmethod
    def of(cls, flow: Dataflow, batch: DataFrame, *, can_stay: bool) -> Self:
        """Over a batch, which is kept if it is read more than once: Spark would read the sources
        each time.

        What is kept as it is, which takes least, is gone with an executor; it `can_stay` where none
        is lost, or where the epoch is run again then.
        """
        if not flow.is_read_twice:
            return cls(flow.split(batch))
        cached = batch.localCheckpoint(eager=False) if can_stay else batch.persist()
        return cls(flow.split(cached), cached)

    def __getitem__(self, node: Node) -> DataFrame:
        if node not in self._known:
            assert not isinstance(node.step, Source | Operator | Later | LateRecords)
            self._known[node] = node.step(*(self[one] for one in node.inputs))
        return self._known[node]

    def __setitem__(self, node: Node, rows: DataFrame) -> None:
        self._known[node] = rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cached is None:
            return
        if self._cached.is_cached:
            self._cached.unpersist()
        else:  # a checkpoint, of which only its RDD knows
            self._cached._jdf.queryExecution().analyzed().rdd().unpersist(False)


def describe(sink: Sink) -> str:
    """A sink for people: its place, or its class."""
    return str(sink.place) if isinstance(sink, Placed) else type(sink).__name__


def operators_of(flow: Dataflow) -> list[Operator]:
    return [node.step for node in flow.operators.values() if isinstance(node.step, Operator)]


def _late_columns(node: Node) -> StructType | None:
    return to_spark(node.step.late) if isinstance(node.step, KeepingLate) else None


def _ways_in(node: Node) -> tuple[Node, ...]:
    """The inputs of an operator, which are side by side if there are several."""
    (input,) = node.inputs
    inputs = node.step.inputs if isinstance(node.step, Operator) else 1
    return input.inputs if inputs == len(input.inputs) > 1 else (input,) * inputs


def _column(inlet: int, place: int) -> str:
    return f"_{inlet}_{place}"


def _tagged(number: int, rows: DataFrame) -> DataFrame:
    named = rows.toDF(*(_column(number, place) for place in range(len(rows.columns))))
    return named.select(sf.lit(number).cast("tinyint").alias(INLET), "*")
