"""Deliveries of a driver that may have been taken over, or whose sink has lost its producer."""

from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from godwit.errors import ConfigError, FencedError
from godwit.spark.epoch import Engine
from godwit.spark.sinks.kafka import ProducerLostError

TAKEN = FencedError("checkpoint", 1, 2)
LOST = ProducerLostError("the Kafka topic counts has lost the transactional id")


def deliver(sinks: int, *events: Exception | None) -> list[str]:
    """What a driver does with two sinks, if its checks and deliveries end as the events say."""
    seen: list[str] = []
    coming = iter(events)

    def happen(what: str) -> None:
        seen.append(what)
        if (error := next(coming, None)) is not None:
            raise error

    engine = MagicMock(spec=Engine)
    engine.driver = MagicMock()
    engine.driver.check.side_effect = lambda: happen("check")
    engine._outlets_in.return_value = [(None, number) for number in range(sinks)]
    engine._deliver_to.side_effect = lambda spark, node, sink, manifest: happen(f"sink {sink}")
    try:
        Engine._deliver(cast(Any, engine), MagicMock(), MagicMock(epoch=0))
    except (FencedError, ConfigError) as error:
        seen.append(type(error).__name__)
    return seen


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], ["check", "sink 0", "check", "sink 1", "check"]),
        ([None, None, TAKEN], ["check", "sink 0", "check", "FencedError"]),
        ([None, LOST], ["check", "sink 0", "check", "sink 0", "check", "sink 1", "check"]),
        ([None, LOST, TAKEN], ["check", "sink 0", "check", "FencedError"]),
        ([None, LOST, None, LOST], ["check", "sink 0", "check", "sink 0", "ConfigError"]),
    ],
    ids=["whole", "taken over between sinks", "lost once", "lost to a new driver", "lost twice"],
)
def test_a_driver_looks_whether_it_was_taken_over(
    events: list[Exception | None], expected: list[str]
) -> None:
    assert deliver(2, *events) == expected
