"""What Godwit does with the offsets of Spark's Kafka source, as Spark writes and reports them."""

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from godwit.log.spark_log import offsets_digest, source_offsets
from godwit.model.backlog import unread_offsets
from godwit.spark.backlog import latest_offsets
from godwit.storage.local import LocalStore

BATCH = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1731000000000,'
    '"conf":{"spark.sql.shuffle.partitions":"2"}}'
)
CLICKS = '{"clicks":{"2":0,"4":115,"1":134,"3":21,"0":534}}'  # Kafka's partitions have no order
MORE = '{"clicks":{"2":0,"4":115,"1":134,"3":22,"0":534}}'
PAGES = '{"pages-new":{"0":7},"pages-old":{"0":23,"1":42}}'  # of a pattern of topics
FILES = '{"logOffset":3}'


def log_of(directory: Path, *epochs: list[str]) -> LocalStore:
    """Spark's log with the offsets of its sources in each epoch."""
    (directory / "offsets").mkdir()
    for epoch, lines in enumerate(epochs):
        (directory / "offsets" / str(epoch)).write_text("\n".join(["v1", BATCH, *lines]))
    return LocalStore(directory)


def reported(*latest: str | None) -> list[object]:
    """The newest offsets in a report of Spark's on a query with these sources."""
    sources = [
        {
            "description": "KafkaV2[Subscribe[clicks]]",
            "startOffset": json.loads(CLICKS),
            "endOffset": json.loads(CLICKS),
            "latestOffset": None if offset is None else json.loads(offset),
            "numInputRows": 10,
            "metrics": {"avgOffsetsBehindLatest": "0.0", "maxOffsetsBehindLatest": "0"},
        }
        for offset in latest
    ]
    query = MagicMock()
    query.lastProgress.json = json.dumps({"batchId": 1, "sources": sources})
    return latest_offsets(query)


def test_each_source_has_a_line(tmp_path: Path) -> None:
    log = log_of(tmp_path, [CLICKS], [PAGES, "-", FILES])
    assert source_offsets(log, 0) == [CLICKS]
    assert source_offsets(log, 1) == [PAGES, "-", FILES]


def test_the_digest_tells_each_record_and_each_source(tmp_path: Path) -> None:
    log = log_of(tmp_path, [CLICKS], [CLICKS], [MORE], [CLICKS, PAGES], [PAGES, CLICKS])
    first, again, *others = (offsets_digest(log, epoch) for epoch in range(5))
    assert first == again
    assert len({first, *others}) == 4


@pytest.mark.parametrize(
    ("latest", "ends", "unread"),
    [
        ([MORE], [CLICKS], 1),
        ([CLICKS], [CLICKS], 0),
        (['{"clicks":{"2":5,"4":116,"1":134,"3":21,"0":534}}'], [CLICKS], 6),
        (['{"clicks":{"2":0,"4":115,"1":134,"3":21,"0":534,"5":9}}'], [CLICKS], 9),  # partition 5
        (['{"clicks":{"0":534}}'], [CLICKS], 0),  # partitions are gone
        (['{"clicks":{"2":0,"4":115,"1":134,"3":21,"0":1}}'], [CLICKS], 0),  # a report from before
        ([MORE, '{"pages-new":{"0":9},"pages-old":{"0":23,"1":43}}'], [CLICKS, PAGES], 1 + 3),
        ([MORE, None], [CLICKS, FILES], 1),
        ([MORE, PAGES], [CLICKS, "-"], 1),  # the source has no offset yet
        ([None], [CLICKS], None),
        ([MORE], [CLICKS, PAGES], None),
        ([], [CLICKS], None),  # before the first report
    ],
)
def test_the_backlog_is_in_records_over_topics_and_partitions(
    tmp_path: Path, latest: list[str | None], ends: list[str], unread: int | None
) -> None:
    log = log_of(tmp_path, ends)
    assert unread_offsets(reported(*latest), source_offsets(log, 0)) == unread
