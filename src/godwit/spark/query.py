"""The handle of a running query."""

import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql.streaming.query import StreamingQuery

from godwit.errors import ConfigError
from godwit.log.control import Request
from godwit.model.routing import Routing, Update
from godwit.runtime.driver import Driver
from godwit.spark.engine import Engine

Outcome = Literal["done", "open"]


@dataclass(frozen=True, slots=True)
class Migration:
    """An accepted control request: updates that take effect at their epochs.

    It is durable: if the query ends first, it is *open* and goes on when the query starts again,
    unless that start gives other numbers of workers or bins, which overrule it.
    """

    driver: Driver
    request: Request

    @property
    def epoch(self) -> int:
        """The epoch of its last update."""
        return self.request.last

    @property
    def outcome(self) -> Outcome:
        """'done' when its last epoch is published, else 'open'."""
        committed = self.driver.committed
        return "done" if committed is not None and committed >= self.epoch else "open"

    def wait(self, timeout: float | None = None) -> Outcome:
        """Wait until it is done, the query ends or `timeout` seconds have passed."""
        self.driver.wait(self.epoch, timeout)
        return self.outcome


class Query:
    """A running query. Its `spark_query` is Spark's own handle."""

    def __init__(self, spark_query: StreamingQuery, engine: Engine) -> None:
        self.spark_query = spark_query
        self._engine = engine
        self._driver = engine.driver
        threading.Thread(target=self._clean_up, name="godwit-clean-up", daemon=True).start()

    @property
    def epoch(self) -> int | None:
        """The newest published epoch."""
        return self._driver.committed

    @property
    def is_active(self) -> bool:
        return bool(self.spark_query.isActive)

    def routing(self, operator: str | None = None) -> Routing:
        """The routing of the newest epoch that has begun."""
        return self._driver.routing(self._only(operator))

    def migrate(self, target: Routing | int, operator: str | None = None) -> Migration:
        """Make `target` the routing from the next epoch on.

        A number stands for all bins spread evenly over that many workers.
        """
        name = self._only(operator)
        if isinstance(target, int):
            target = Routing.even(self.routing(name).bins, target)
        return Migration(self._driver, self._driver.migrate(name, target))

    def schedule(
        self, updates: Iterable[Update], operator: str | None = None, workers: int | None = None
    ) -> Migration:
        """Give bins to workers at epochs to come; `workers` is their number from then on."""
        name = self._only(operator)
        return Migration(self._driver, self._driver.schedule(name, updates, workers))

    def await_epoch(self, epoch: int, timeout: float | None = None) -> bool:
        """Wait until `epoch` is published; False if the query ends or `timeout` passes before."""
        return self._driver.wait(epoch, timeout)

    def process_all_available(self) -> None:
        """Wait until all data that are there now are processed; raises what failed the query."""
        try:
            self.spark_query.processAllAvailable()
        except Exception:
            self._raise_failure()
            raise

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends; raises what failed it. False if it runs on after `timeout`."""
        try:
            ended = self.spark_query.awaitTermination(timeout)  # type: ignore[arg-type]
        except Exception:
            self._raise_failure()
            raise
        return timeout is None or bool(ended)

    def stop(self) -> None:
        """Stop the query; an unfinished epoch is replayed at the next start."""
        self.spark_query.stop()

    def _raise_failure(self) -> None:
        if self._engine.failure is not None:
            raise self._engine.failure from None
        self._driver.check()  # a newer driver takes Spark's log away, which Spark cannot explain

    def _only(self, operator: str | None) -> str:
        names = list(self._driver.operators)
        if operator is None and len(names) > 1:
            raise ConfigError(f"name one of the query's operators: {', '.join(names)}")
        return operator or names[0]

    def _clean_up(self) -> None:
        with suppress(Exception):  # whoever asks the handle is told
            self.spark_query.awaitTermination()
        self._driver.close()
        directory = self._driver.cache.directory
        if directory:
            shutil.rmtree(Path(directory) / self._driver.cache.name, ignore_errors=True)
