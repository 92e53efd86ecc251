"""What is told of losses; the losses themselves are Spark's matter and take minutes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.inspect.report import EpochReport, OperatorReport
from lab.experiments.executor_loss import PHASES, Recovery
from lab.experiments.recovery import CHECKPOINT, HUNG, OWN, REPLICAS, findings
from lab.workloads.profiles import OPERATOR
from tests.support.lab_pages import check_page

Lengths = tuple[float, float, float, float, float]


def operator_report(**changed: float) -> OperatorReport:
    given: dict[str, Any] = dict.fromkeys(OperatorReport.__dataclass_fields__, 0)
    given |= {"name": OPERATOR, "watermark": None, "migration": None, "seconds": {}}
    return OperatorReport(**(given | changed))


def test_phases_follow_each_other_from_the_loss_to_the_output() -> None:
    """Killed at 10, known at 10.5; workers begin at 12, fetch and load until 16, visible at 17."""
    parts = {"decide": 1.0, "compute": 5.0, "publish": 0.75, "deliver": 0.25}
    operator = operator_report(fetched=123, fetch_seconds=1.5)
    report = EpochReport(7, 7.0, parts, {OPERATOR: operator})
    found = Recovery.of(
        killed=10.0, known=10.5, ended=17.0, report=report, slowest={"read": 1.0, "process": 3.0}
    )
    assert found.phases == dict(zip(PHASES, (0.5, 1.5, 1.5, 2.5, 1.0), strict=True))
    assert (found.whole, found.fetched) == (7.0, 123)
    assert sum(found.phases.values()) == found.whole


def test_of_what_is_not_known_the_rest_is_told() -> None:
    assert Recovery(0.5, 4.0).phases == {"detection": 0.5, "the rest": 3.5}


@given(st.tuples(*[st.floats(0.01, 100.0)] * 5), st.integers(0, 10**9))
def test_each_phase_begins_where_the_one_before_ended(lengths: Lengths, fetched: int) -> None:
    """Whatever the clock says: the times of a loss are told from the lengths of its phases."""
    detection, _, fetching, loading, publishing = lengths
    killed = 1000.0
    parts = {
        "decide": 0.5,
        "compute": 1.0,
        "publish": publishing / 4,
        "deliver": 3 * publishing / 4,
    }
    operator = operator_report(fetched=fetched, fetch_seconds=fetching)
    found = Recovery.of(
        killed,
        known=killed + detection,
        ended=killed + sum(lengths),
        report=EpochReport(7, 7.0, parts, {OPERATOR: operator}),
        slowest={"read": fetching, "process": loading},
    )
    assert list(found.phases.values()) == pytest.approx(lengths, rel=1e-6, abs=1e-6)
    assert found.whole == pytest.approx(sum(lengths))
    assert found.fetched == fetched


def test_the_loss_of_median_length_is_shown(tmp_path: Path) -> None:
    """Of losses of random length, by size and way; people and programs are told the same."""
    rng = np.random.default_rng(1)
    losses = {
        (size, way): [imagined_loss(rng, known=way != OWN) for _ in range(3)]
        for size in (0.1, 0.5)
        for way in (CHECKPOINT, REPLICAS, HUNG, OWN)
    }
    shown = findings(losses)
    check_page(tmp_path, "recovery", shown)
    (table,) = (section.table for section in shown.sections if section.table)
    rows = {
        (float(row[0]), row[1]): dict(zip(table.header, row, strict=True)) for row in table.rows
    }
    assert rows.keys() == losses.keys()
    for case, some in losses.items():
        least, middle, most = sorted(some, key=lambda loss: loss.whole)
        told = {name: getattr(middle, name) for name in PHASES}
        assert [rows[case][name] for name in PHASES] == [
            "-" if taken is None else f"{taken:.2f}" for taken in told.values()
        ]
        assert [rows[case][name] for name in ("whole s", "from", "to")] == [
            f"{loss.whole:.2f}" for loss in (middle, least, most)
        ]
        assert rows[case]["losses"] == "3"
        assert rows[case]["MB fetched"] == f"{middle.fetched / 1e6:.1f}"
        assert rows[case]["MB stored"] == f"{middle.stored / 1e6:.0f}"
    told_to_programs = [
        (one["gb"], one["way"], one["whole"], one["fetched"], one["stored"])
        for one in shown.numbers["losses"]
    ]
    assert told_to_programs == [
        (*case, one.whole, one.fetched, one.stored) for case, some in losses.items() for one in some
    ]


def imagined_loss(rng: np.random.Generator, *, known: bool) -> Recovery:
    """Of Spark's own recovery only the whole is known."""
    lengths = rng.uniform(0.1, 5.0, len(PHASES)).tolist()
    fetched, stored = rng.integers(0, 10**9, 2).tolist()
    loss = Recovery(lengths[0], sum(lengths), fetched=fetched, stored=stored)
    return replace(loss, **dict(zip(PHASES[1:], lengths[1:], strict=True))) if known else loss
