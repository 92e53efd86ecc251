"""A Python function for a worker's events of an epoch: records in the order of their time, and
notices that it has scheduled itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.description import OperatorDescription
from godwit.model.keys import distinct, flat
from godwit.model.schema import check_names
from godwit.model.time import Duration
from godwit.operators import definition, user_function
from godwit.operators.base import Changes, Hashes, Horizon, TableView, TimedView
from godwit.operators.definition import INPUT
from godwit.operators.events import NOTICES, Arrivals, EventLoop, Function, Side
from godwit.operators.forms import Form
from godwit.state.table import TableSpec
from godwit.state.timed import KEY_HASH, moments, payload, timed_spec, waiting

HELD = "_held"


@dataclass(frozen=True)
class EventMachine:
    """Calls `function(events, notify)` once for each worker and epoch.

    It iterates over all `events`, whose keys are mixed: records in the order of (time, key,
    content), then the notices up to the watermark in the order of their time. If it is `strict`,
    records wait until the watermark has passed their time, and come between the notices: those of a
    time after the notices for that time. `notify(key, time, *values)` schedules a notice; one for a
    time that has passed comes in the same epoch.
    """

    prefold: ClassVar[None] = None
    name: str
    key: pa.Schema
    input: pa.Schema
    output: pa.Schema
    function: Function
    forms: Mapping[str, Form]
    single: bool
    time: str
    delay: int
    notices: pa.Schema | None
    strict: bool
    sides: tuple[Side, ...]
    horizon: Horizon
    window: str | None

    @classmethod
    def of(
        cls,
        name: str,
        key: str | Sequence[str],
        function: Function,
        state: str | Mapping[str, Form],
        output: str,
        input: pa.Schema,
        *,
        time: str,
        delay: Duration = "0 s",
        notices: str | None = None,
        strict: bool = False,
        sides: tuple[Side, ...] | None = None,
        horizon: Horizon | None = None,
        window: str | None = None,
    ) -> Self:
        """The event machine over records of schema `input`; `sides` if they are of two inputs."""
        with definition.defining(name):
            keys = definition.key_schema(key, input)
            allowed = definition.watermark_delay(definition.time_field(time, input), delay)
            if allowed is None:
                raise ConfigError("it needs the column of the event time, and a delay")
            values = {column: column for column in input.names if column not in keys.names}
            self = cls(
                name,
                keys,
                input,
                user_function.schema_of("output", output),
                function,
                user_function.forms_of(state),
                isinstance(state, str),
                time,
                allowed,
                None if notices is None else _notices(notices),
                strict,
                sides or (Side("record", values),),
                horizon or definition.own_time(time),
                window,
            )
            self._check()
            return self

    def _check(self) -> None:
        user_function.check_function(self.function)
        check_names(pa.schema([field for field in self.input if field.name != INPUT]))
        for side in self.sides:
            definition.check_attributes("input column", side.columns.values())
        for spec in self.tables:
            definition.check_table(spec)

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        specs = [form.spec(name, self.key) for name, form in self.forms.items()]
        if self.notices is not None:
            specs.append(timed_spec(NOTICES, self.key, self.notices))
        if self.strict:
            values = [f.with_nullable(True) for f in self.input if f.name not in self.key.names]
            specs.append(timed_spec(HELD, self.key, pa.schema(values)))
        return tuple(specs)

    @property
    def ordered(self) -> bool:
        return True

    @property
    def inputs(self) -> int:
        return len(self.sides)

    def describe(self) -> OperatorDescription:
        kind = "unary" if len(self.sides) == 1 else "binary"
        described = definition.describe(kind, self.key, self.tables, self.output)
        return replace(described, window=self.window)

    def process(
        self, epoch: int, hashes: Hashes, records: pa.Table, state: Mapping[str, TableView]
    ) -> Changes:
        deltas: dict[str, pa.Table] = {}
        if self.strict:
            held = cast(TimedView, state[HELD])
            hashes, records, deltas[HELD] = self._release(epoch, hashes, records, held)
        notices, until = None, None
        if self.notices is not None:
            scheduled = cast(TimedView, state[NOTICES])
            notices, until = scheduled.due(), scheduled.span.until
        arrivals = Arrivals.of(self, hashes, records, notices)
        if not len(arrivals.hashes):
            return Changes(deltas)
        groups = distinct(arrivals.hashes, arrivals.keys, ordered=False)
        cells = {
            name: form.open(epoch, groups, state[name], in_order=False)
            for name, form in self.forms.items()
        }
        run = EventLoop(self, epoch, groups, list(cells.values()), until)
        with user_function.rare_collections():
            outputs = run.outputs(arrivals)
        deltas |= {name: cell.delta() for name, cell in cells.items()}
        if self.notices is not None:
            deltas[NOTICES] = run.scheduled()
        return Changes(deltas, outputs)

    def _release(
        self, epoch: int, hashes: Hashes, records: pa.Table, held: TimedView
    ) -> tuple[Hashes, pa.Table, pa.Table]:
        """The records before the watermark, those that were held first; and those to hold now.

        A record waits for the moment after its time: then no other of that time is expected.
        """
        at = moments(records.column(self.time)) + 1
        until = held.span.until
        free = np.zeros(len(at), np.bool_) if until is None else at <= until
        stay = pa.array(~free)
        kept = records.filter(stay)
        values = kept.select(payload(held.spec).names)
        delta = waiting(
            held.spec, epoch, hashes[~free], at[~free], kept.select(self.key.names), values
        )
        released = held.due()
        before = flat(released.column(KEY_HASH)).to_numpy().view(np.uint64)
        both = [released.select(records.column_names), records.filter(pa.array(free))]
        return np.concatenate((before, hashes[free])), pa.concat_tables(both), delta


def _notices(ddl: str) -> pa.Schema:
    schema = user_function.schema_of("notices", ddl) if ddl.strip() else pa.schema([])
    definition.check_attributes("column of notices", schema.names)
    return schema
