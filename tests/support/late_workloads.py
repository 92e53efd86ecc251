"""Operators under test that keep late records, and over sources that can be idle, with the models
of those that drop them, and over sources that cannot."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from godwit.operators.definition import INPUT, TIME
from godwit.operators.late import KeepingLate
from tests.support.counting_workloads import KEY, Row, Workload
from tests.support.expiring_workloads import FADING
from tests.support.join_workloads import JOINED_FULL, JOINED_SEMI
from tests.support.merged_windows import VISITS
from tests.support.timed_workloads import ALARMS, PAIRS, Silence, Timed
from tests.support.window_workloads import WINDOWS


class Keeping:
    """What `of` puts out, and what is late for it."""

    def __init__(self, of: Timed, operator: KeepingLate, show: Callable[[Row], Row]) -> None:
        self.of, self._show = of, show
        self._name, self._columns = operator.name, operator.late.names

    def finish(self) -> None:
        self.of.finish()

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs = self.of.feed(rows)
        for row in map(self._show, self.of.late):
            outputs.append({"late": self._name} | {name: row[name] for name in self._columns})
        return outputs

    def state(self) -> dict[str, list[Row]]:
        return self.of.state()  # type: ignore[attr-defined, no-any-return]


def _keeping(workload: Workload, operator: KeepingLate, show: Callable[[Row], Row]) -> Workload:
    def model() -> Keeping:
        of = workload.model()
        assert isinstance(of, Timed)
        return Keeping(of, operator, show)

    return replace(workload, name=f"{workload.name}_late", operator=operator, model=model)


def _of_one(workload: Workload) -> Workload:
    given = {field.name: field for field in workload.schema}
    return _keeping(workload, KeepingLate.define(workload.operator, given), dict)


def _of_two(workload: Workload, shared: Sequence[str], names: dict[str, str]) -> Workload:
    operator = KeepingLate.sides(workload.operator, workload.schema, shared, "at")

    def show(row: Row) -> Row:
        return {
            names.get(name, name): ("left", "right")[value] if name == INPUT else value
            for name, value in row.items()
            if name in workload.schema.names
        }

    return _keeping(workload, operator, show)


ALARMS_LATE = _of_one(ALARMS)
WINDOWS_LATE = _of_one(WINDOWS)
VISITS_LATE = _of_one(VISITS)
FADING_LATE = _of_one(FADING)
PAIRS_LATE = _of_two(PAIRS, (*KEY, "at"), {INPUT: "side", "left_n": "n", "right_m": "m"})
JOINED_SEMI_LATE = _of_two(
    JOINED_SEMI, (*KEY, TIME), {INPUT: "side", TIME: "at", "left_x": "x", "right_y": "y"}
)


class Idling:
    """`of`, over sources that are idle after so many seconds without a record."""

    def __init__(self, of: Any, timed: Timed, idle_after: float) -> None:
        self._of = of
        self._silence = timed.silence = Silence(idle_after)

    def begin(self, now: float, decided_by: int, published_by: int) -> None:
        self._silence.begin(now, decided_by, published_by)

    def finish(self) -> None:
        self._of.finish()

    def feed(self, rows: Sequence[Row]) -> list[Row]:
        outputs: list[Row] = self._of.feed(rows)
        return outputs

    def state(self) -> dict[str, list[Row]]:
        state: dict[str, list[Row]] = self._of.state()
        return state


def _idling(workload: Workload, idle_after: int) -> Workload:
    def model() -> Idling:
        of = workload.model()
        timed = of.of if isinstance(of, Keeping) else of
        assert isinstance(timed, Timed)
        return Idling(of, timed, idle_after)

    edges = {"idle_after": idle_after * 1_000_000}
    return replace(workload, name=f"{workload.name}_idle", model=model, edges=edges)


PAIRS_IDLE = _idling(PAIRS_LATE, 1)
JOINED_IDLE = _idling(JOINED_FULL, 2)
