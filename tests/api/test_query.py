"""What a handle of a query does beside Spark."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from godwit.api.query import Query


def test_a_query_that_was_asked_to_stop_does_so_although_the_wait_before_it_fails() -> None:
    """Spark's log cannot be listed, which tells whether the last epoch is committed."""
    spark_log, spark_query = MagicMock(), MagicMock()
    spark_log.names.side_effect = PermissionError("commits")
    monitor = SimpleNamespace(wait_for=lambda is_delivered: is_delivered())
    query: Any = SimpleNamespace(
        _driver=SimpleNamespace(
            monitor=monitor,
            timelines=SimpleNamespace(last_epoch=3),
            checkpoint=SimpleNamespace(within=lambda name: spark_log),
        ),
        _engine=SimpleNamespace(delivered=3),
        is_active=True,
        spark_query=spark_query,
    )
    Query._stop_if_asked(query)
    spark_log.names.assert_called_once()
    spark_query.stop.assert_called_once()
