"""Operators without a job: a chain, or a graph of them, in epochs without Spark."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from godwit.driver.driver import Driver
from godwit.model.hashing import Hashes, hash_rows
from godwit.operators.base import Operator
from godwit.operators.late import KeepingLate
from godwit.spark.dataflow import Dataflow
from godwit.spark.node import Node, Source
from godwit.spark.sinks.console import console
from godwit.spark.sinks.sink import Sink
from godwit.spark.windows import Union
from godwit.testing.arrow_flow import ArrowFlow, Code
from godwit.testing.simulation import Epochs, Row, Rows


class OperatorSimulation(Epochs):
    """One operator, or one behind the other, for tests of operators and of the runtime.

    If `takes` says what each operator takes, by name ("" is the source), they are a graph, or that
    of a `flow`, whose sources get the records that name them as `source`. Outputs of operators that
    `sinks` names, in the order of the flow's, are delivered.
    """

    def __init__(
        self,
        checkpoint: Path,
        operators: Operator | Sequence[Operator],
        schema: pa.Schema,
        *,
        workers: int = 2,
        bins: int = 64,
        retention: int = 20,
        hashes: Callable[[pa.Table], Hashes] = hash_rows,
        clock: Callable[[], float] = time.time,
        takes: Mapping[str, Sequence[str]] | None = None,
        sinks: Sequence[str] = (),
        idle_after: int | None = None,
        flow: ArrowFlow | None = None,
    ) -> None:
        chain = [operators] if isinstance(operators, Operator) else list(operators)
        self._ends = sinks
        super().__init__(
            checkpoint,
            flow
            or (
                _chain(chain, schema, idle_after)
                if takes is None
                else _graph(chain, schema, takes, sinks)
            ),
            workers=workers,
            bins=bins,
            retention=retention,
            hashes=hashes,
            clock=clock,
        )

    @property
    def driver(self) -> Driver:
        return self._driver

    @property
    def executors(self) -> dict[str, str]:
        """The executors that workers are placed on, with their hosts."""
        return self._executors

    @executors.setter
    def executors(self, executors: dict[str, str]) -> None:
        self._executors = executors

    @property
    def sink(self) -> dict[int, list[Row]]:
        """The rows delivered for each epoch."""
        return self._sinks.setdefault(0, {})

    @property
    def delivered(self) -> dict[int, list[Row]]:
        """Of all sinks; the rows of a graph say by `sink` whose outputs they are, and late records
        by `late` whose."""
        late = [node.inputs[0].step for node, _ in self._flow.flow.outlets[len(self._ends) or 1 :]]
        if not self._ends and not late:
            return self.sink
        labels = [{"sink": name} for name in self._ends] or [{}]
        labels += [{"late": step.name} for step in late if isinstance(step, Operator)]
        return {
            epoch: [
                {**label, **row}
                for number, label in enumerate(labels)
                for row in self.outputs(epoch, sink=number)
            ]
            for epoch in self.sink
        }

    def feed(self, rows: Rows) -> None:
        """Run one epoch over `rows`; after a death, call `resume` on the restarted simulation."""
        records = list(rows)
        self._offer(
            tuple(
                pa.Table.from_pylist(
                    [row for row in records if row.get("source", name) == name], schema=schema
                )
                for name, schema in zip(self._flow.names, self._flow.schemas, strict=True)
            )
        )

    def restart(
        self,
        *,
        workers: int | None = None,
        bins: int | None = None,
        operator: Operator | None = None,
    ) -> None:
        """Open the checkpoint as a new process would."""
        if operator is not None:
            before = list(self._flow.operators.values())[:-1]
            self._flow = _chain([*before, operator], self._flow.schemas[0])
        self._driver = self._open(workers, bins)


def _graph(
    operators: Sequence[Operator],
    schema: pa.Schema,
    takes: Mapping[str, Sequence[str]],
    sinks: Sequence[str],
) -> ArrowFlow:
    streams, code = {"": Node(Source())}, dict[Node, Code]()
    for operator in operators:
        inputs = [streams[name] for name in takes[operator.name]]
        input = inputs[0] if len(inputs) == 1 else Node(Union(), tuple(inputs))
        code[input] = Union().records
        streams[operator.name] = Node(operator, (input,), late=_late_sink(operator))
    flow = Dataflow(tuple((streams[name], console()) for name in sinks))
    return ArrowFlow(flow, code, [schema], ["rows"])


def _late_sink(operator: Operator) -> Sink | None:
    return console() if isinstance(operator, KeepingLate) else None


def _chain(
    operators: Sequence[Operator], schema: pa.Schema, idle_after: int | None = None
) -> ArrowFlow:
    """One operator behind the other."""
    node = Node(Source(None, idle_after))
    for operator in operators:
        node = Node(operator, (node,), late=_late_sink(operator))
    return ArrowFlow(Dataflow(((node, console()),)), {}, [schema], ["rows"])
