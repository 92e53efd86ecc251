"""What is told of losses; the losses themselves are Spark's matter and take minutes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from godwit.inspect.report import EpochReport, OperatorReport
from lab.experiments.losing import OPERATOR, PHASES, Recovery
from lab.experiments.recovery import CHECKPOINT, HUNG, OWN, REPLICAS, findings
from tests.support.pages import check_page

LOSS = Recovery(0.1, 1.0, 0.2, 0.05, 0.4, 0.25, fetched=2_000_000)


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


def test_the_loss_of_median_length_is_shown(tmp_path: Path) -> None:
    losses = [replace(LOSS, whole=LOSS.whole + more, loading=0.4 + more) for more in (4, 0, 1)]
    shown = findings(
        {
            (0.1, CHECKPOINT): losses,
            (0.1, REPLICAS): losses[1:],
            (0.1, HUNG): losses[:1],
            (0.1, OWN): [Recovery(0.1, 9.0, stored=104_000_000)],
        }
    )
    check_page(tmp_path, "recovery", shown)
    (table,) = (section.table for section in shown.sections if section.table)
    by_way = {row[1]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert [by_way[CHECKPOINT][name] for name in ("loading", "whole s", "from", "to")] == [
        "1.40",
        "2.00",
        "1.00",
        "5.00",
    ]
    assert by_way[REPLICAS]["MB fetched"] == "2.0"
    assert [by_way[OWN][name] for name in ("fetching", "MB stored")] == ["-", "104"]
    assert [one["whole"] for one in shown.numbers["losses"]] == pytest.approx(
        [5.0, 1.0, 2.0, 1.0, 2.0, 5.0, 9.0]
    )
