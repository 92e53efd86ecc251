"""The reference of metrics has those that a query writes, and no other."""

import re
from pathlib import Path

from godwit.inspect.prometheus import PrometheusFile
from godwit.inspect.report import EpochReport
from godwit.model.unread import UnreadFiles

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_the_reference_has_all_metrics_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "counts.prom"
    PrometheusFile(path)(
        EpochReport(0, 0.1, {"decide": 0.1}, {}, backlog=1, unread=UnreadFiles(2, 1.0))
    )
    written = re.findall(r"^# TYPE (\w+) (\w+)$", path.read_text(), re.MULTILINE)
    told = re.findall(r"^\| `(godwit_\w+)` \| (\w+) \|", REFERENCE.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(written)
