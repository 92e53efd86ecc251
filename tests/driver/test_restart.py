"""What may change between two starts of a query, and what is refused before anything is written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import godwit.operators as ops
from godwit.errors import IncompatibleError, OperatorError
from godwit.operators import (
    Aggregate,
    AggregateOperator,
    Form,
    List,
    Map,
    Operator,
    StateMachine,
    Value,
)
from godwit.operators.windowed import Windowed
from godwit.operators.windows import tumbling
from tests.support.counting_workloads import KEY
from tests.support.damage import intent
from tests.support.death import death_at
from tests.support.simulated import COUNTS, WORDS, content, counts, drive, simulate, words
from tests.support.timed_workloads import at
from tests.support.window_workloads import WINDOWS

# -- what may change -------------------------------------------------------------------------------


def _visits(key: str, value: Any, state: Any) -> list[tuple[str, int]]:
    state.visits = (state.visits or 0) + 1
    return [(key, state.visits)]


def _visits_and_length(key: str, value: Any, state: Any) -> list[tuple[str, int]]:
    if state.length is None:
        state.length = 100 * value.n
    state.visits = (state.visits or 0) + 1
    return [(key, state.length)]


def machine(function: Any, state: str | Mapping[str, Form], name: str = "m") -> StateMachine:
    return StateMachine.of(name, "word", function, state, "word string, n long", WORDS)


def test_an_added_column_is_null_for_the_keys_that_were_there(tmp_path: Path) -> None:
    sim = simulate(tmp_path, machine(_visits, "visits long"))
    sim.feed(words("old", "idle"))
    sim.restart(operator=machine(_visits_and_length, "visits long, length long"))
    sim.feed(words("old", "new"))
    columns = {(row["word"], row["visits"], row["length"]) for row in sim.state()}
    assert columns == {("old", 2, 300), ("new", 1, 300), ("idle", 1, None)}
    before = sim.state(epoch=0)
    assert {(row["word"], row["visits"]) for row in before} == {("old", 1), ("idle", 1)}
    assert "length" not in before[0]


def test_an_added_column_may_stand_before_the_others(tmp_path: Path) -> None:
    sim = simulate(tmp_path, machine(_visits, "visits long"))
    sim.feed(words("old", "idle"))
    sim.restart(operator=machine(_visits_and_length, "length long, visits long"))
    sim.feed(words("old"))
    assert {(row["word"], row["visits"], row["length"]) for row in sim.state()} == {
        ("old", 2, 300),
        ("idle", 1, None),
    }


def test_an_added_function_starts_from_nothing(tmp_path: Path) -> None:
    sim = simulate(tmp_path)
    sim.feed(words("old", "idle"))
    functions = {"rows": ops.count(), "total": ops.sum("n"), "n": ops.count("n")}
    functions["top"] = ops.max("n")
    sim.restart(operator=AggregateOperator.of("counts", "word", functions, WORDS))
    sim.feed(words("old", "new"))
    found = {row["word"]: (row["rows"], row["total"], row["n"], row["top"]) for row in sim.state()}
    assert found == {"old": (2, 6, 1, 3), "new": (1, 3, 1, 3), "idle": (1, 4, None, None)}
    rows = {(row["word"], row["n"]) for row in sim.sink[1]}
    assert rows == {("old", 1), ("new", 1)}


def _append(key: str, value: Any, state: Any) -> None:
    if value.n == 1:
        state.items.append(value.n)
        state.seen[key] = value.n


def _append_pairs(key: str, value: Any, state: Any) -> list[tuple[str, int]]:
    state.items.append((value.n, "x"))
    state.seen[f"{key}{value.n}"] = (value.n, "y")
    lengths = len([item for item in state.items if item.note is None])
    nulls = len([row for row in state.seen.values() if row.note is None])
    return [(key, 10 * lengths + nulls)]


def test_columns_may_be_added_to_lists_and_maps(tmp_path: Path) -> None:
    narrow: dict[str, Form] = {"items": List("n long"), "seen": Map("k string", "n long")}
    wide: dict[str, Form] = {
        "items": List("n long, note string"),
        "seen": Map("k string", "n long, note string"),
    }
    sim = simulate(tmp_path, machine(_append, narrow))
    sim.feed([{"word": "a", "n": 1}] * 2)
    sim.restart(operator=machine(_append_pairs, wide))
    sim.feed([{"word": "a", "n": 2}])
    assert sim.sink[1] == [{"word": "a", "n": 21}]  # two elements and one entry without a note
    assert [(row["n"], row["note"]) for row in sim.state("items")] == [(1, None)] * 2 + [(2, "x")]
    assert {(r["k"], r["n"], r["note"]) for r in sim.state("seen")} == {
        ("a", 1, None),
        ("a2", 2, "y"),
    }


@pytest.mark.parametrize("bins", [1, 4, 16, 64, 4096])
def test_the_number_of_bins_may_change(tmp_path: Path, bins: int) -> None:
    sim = simulate(tmp_path, workers=3, bins=16)
    sim.feed(words("a", "b", "c", "d", "e"))
    sim.restart(bins=bins)
    sim.feed(words("a", "f"))
    assert sim.driver.routing("counts").bins == bins
    assert counts(sim) == {"a": 2, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}


def test_a_function_may_be_rewritten(tmp_path: Path) -> None:
    """What a function does is not state; only what it keeps is."""
    sim = simulate(tmp_path, machine(_visits, "visits long"))
    sim.feed(words("a"))

    def doubled(key: str, value: Any, state: Any) -> None:
        state.visits *= 2

    sim.restart(operator=machine(doubled, "visits long"))
    sim.feed(words("a"))
    assert [row["visits"] for row in sim.state()] == [2]


# -- what is refused -------------------------------------------------------------------------------


def aggregate(
    key: str | list[str] = "word", schema: pa.Schema = WORDS, **functions: Aggregate
) -> AggregateOperator:
    return AggregateOperator.of("counts", key, functions or dict(COUNTS.functions), schema)


def forms(**states: Form) -> StateMachine:
    return machine(_append, states)


LONG_WORDS = pa.schema({"word": pa.int64(), "n": pa.int64()})
VALUE, LIST = Value("visits long"), List("n long")
MAP = Map("k string", "n long")

REFUSED: dict[str, tuple[Operator, Operator, str]] = {
    "key type": (
        COUNTS,
        aggregate(schema=LONG_WORDS),
        "'counts'.*its key was '`word` string', now '`word` bigint'",
    ),
    "key columns": (COUNTS, aggregate(key=["word", "n"]), "its key was '`word` string', now"),
    "order of key columns": (
        aggregate(key=["word", "n"]),
        aggregate(key=["n", "word"]),
        "its key was",
    ),
    "function": (
        COUNTS,
        aggregate(rows=ops.count(), total=ops.max("n")),
        r"total was sum\(n\), now max\(n\)",
    ),
    "column of a function": (
        COUNTS,
        aggregate(rows=ops.count("n"), total=ops.sum("n")),
        r"rows was count\(\), now count\(n\)",
    ),
    "removed function": (COUNTS, aggregate(rows=ops.count()), r"total was sum\(n\), now missing"),
    "renamed function": (
        COUNTS,
        aggregate(rows=ops.count(), sum=ops.sum("n")),
        r"total was sum\(n\), now missing",
    ),
    "type that a function is over": (
        aggregate(low=ops.min("n")),
        aggregate(low=ops.min("n"), schema=pa.schema({"word": pa.string(), "n": pa.int32()})),
        "column 'low' of state 'value' was int64, now int32",
    ),
    "operator renamed": (
        COUNTS,
        AggregateOperator.of("sums", "word", dict(COUNTS.functions), WORDS),
        "'counts'.*no longer has it, but sums. Keep the name, start with drop=",
    ),
    "kind": (
        AggregateOperator.of("m", "word", {"visits": ops.count()}, WORDS),
        machine(_visits, "visits long"),
        "'m'.*its kind was 'aggregate', now 'state_machine'",
    ),
    "column type": (
        machine(_visits, "visits long"),
        machine(_visits, "visits int"),
        "column 'visits' of state 'value' was int64, now int32",
    ),
    "removed column": (
        machine(_visits, "visits long, length long"),
        machine(_visits, "visits long"),
        "column 'length' of state 'value' was removed",
    ),
    "renamed column": (
        machine(_visits, "visits long"),
        machine(_visits, "times long"),
        "column 'visits' of state 'value' was removed",
    ),
    "type within an array": (
        machine(_visits, "visits array<long>"),
        machine(_visits, "visits array<int>"),
        "column 'visits' of state 'value' was list",
    ),
    "removed state": (forms(a=VALUE, b=LIST), forms(a=VALUE), "'m'.*state 'b' was removed"),
    "added state": (forms(a=VALUE), forms(a=VALUE, b=LIST), "'m'.*state 'b' was added"),
    "form": (forms(items=LIST), forms(items=MAP), "the form of state 'items' changed"),
    "value to list": (forms(items=Value("n long")), forms(items=LIST), "the form of state 'items'"),
    "type of a map's key": (
        forms(seen=MAP),
        forms(seen=Map("k long", "n long")),
        "the form of state 'seen' changed",
    ),
}


def _fails(key: str, value: Any, state: Any) -> None:
    raise ValueError("not yet")


def test_state_may_be_defined_anew_until_an_epoch_is_published(tmp_path: Path) -> None:
    sim = simulate(tmp_path, machine(_fails, "visits long"))
    with pytest.raises(OperatorError, match="not yet"):
        sim.feed(words("a"))
    sim.restart(operator=forms(items=LIST, seen=MAP))
    sim.resume()
    assert len(sim.state("items")) == 1


@pytest.mark.parametrize("change", REFUSED)
def test_other_changes_are_refused_by_name_before_anything_is_written(
    tmp_path: Path, change: str
) -> None:
    before, after, message = REFUSED[change]
    sim = simulate(tmp_path, before)
    sim.feed([])
    written = content(tmp_path)
    with pytest.raises(IncompatibleError, match=f"{message}.*, or start with a new"):
        drive(tmp_path, after)
    assert content(tmp_path) == written
    sim.restart(operator=before)
    sim.feed([])
    assert sim.committed == 1


TIMES = pa.schema({"word": pa.string(), "sent": pa.int64(), "arrived": pa.int64()})


def test_a_replay_keeps_the_watermark_of_its_intent_whatever_the_delay_is_now(
    tmp_path: Path,
) -> None:
    """With a delay of 1 s the watermark closes a window in the epoch that is replayed; with that of
    the restart it would not, and it does not go back either."""
    early, late = (next(row for row in WINDOWS.records if row["at"] == at(s)) for s in (0, 9))
    sim = simulate(tmp_path, WINDOWS.operator, schema=WINDOWS.schema)
    sim.feed([early, late])
    with death_at("receipts", "before"):
        sim.feed([])
    delayed = Windowed.define(
        "windows",
        KEY,
        {"rows": ops.count(), "total": ops.sum("n")},
        WINDOWS.schema,
        tumbling("2 s"),
        time="at",
        delay="1 h",
    )
    sim.restart(operator=delayed)
    sim.resume()
    assert [row["window_end"] for row in sim.sink[1]] == [at(2)]
    sim.feed([early, late])  # the early one is late
    assert [row["total"] for row in sim.state()] == [2 * late["n"]]
    first, second = (intent(tmp_path, epoch).watermarks["windows"] for epoch in (1, 2))
    assert first == second


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("sent", "arrived", r"at was last\(sent\) by sent, now last\(sent\) by arrived"),
        ("sent", None, r"at was last\(sent\) by sent, now last\(sent\)"),
        (None, "sent", r"at was last\(sent\), now last\(sent\) by sent"),
    ],
)
def test_another_time_is_refused(
    tmp_path: Path, before: str | None, after: str | None, message: str
) -> None:
    def newest(time: str | None) -> AggregateOperator:
        return AggregateOperator.of("counts", "word", {"at": ops.last("sent")}, TIMES, time=time)

    simulate(tmp_path, newest(before), schema=TIMES).feed([])
    with pytest.raises(IncompatibleError, match=message):
        drive(tmp_path, newest(after))
