"""Going on from the checkpoint of a query that Spark's own operators ran."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from godwit.aggregates.base import Aggregate
from godwit.driver.driver import Driver
from godwit.errors import CheckpointError, ConfigError, DamagedFileError
from godwit.log import spark_log
from godwit.log.history import History
from godwit.log.layout import FORMAT, HOME, SPARK
from godwit.model.ids import Epoch
from godwit.spark.initial_state import load
from godwit.spark.pinning import Pinning
from godwit.storage.fence import FencedDirectory
from godwit.storage.local import LocalStore, scratch

# What Spark calls the operators whose state can be told apart into columns of ours.
AGGREGATION: Final = "stateStoreSave"
WITH_STATE: Final = "applyInPandasWithState"

SOURCES: Final = "sources"
_COMMIT: Final = 'v1\n{"nextBatchWatermarkMs":0}'
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """A query of Spark's own as of the newest batch that it committed.

    `operators` are the kinds of its stateful operators by their numbers. `offsets` are the files of
    Spark's log that a query needs in order to go on: those of `batch`, of the one before it, and of
    the next one if that had begun.

    >>> import godwit as gw
    >>> before = gw.spark_checkpoint(spark, home / "old")  # of words.groupBy("word").count()
    >>> [(row.word, row.n) for row in before.state(n=gw.count()).sort("word").collect()]
    [('be', 1), ('to', 2)]
    """

    spark: SparkSession
    path: str
    batch: int
    offsets: Mapping[int, str]
    operators: Mapping[int, str]

    def state(self, operator: int | None = None, /, **functions: Aggregate) -> DataFrame:
        """The state of a stateful operator, as `initial` of `start` takes it.

        Of an aggregation: the key, and the results as `aggregate` keeps them. `functions` names
        them in the order of the old query, whose state does not tell which columns they are of. Of
        `applyInPandasWithState`: the key, the columns of the state, and if the query has timeouts,
        `timeout`, which is null where none is set. `operator` is needed if there are several.
        """
        number = self._only(operator)
        reader = self.spark.read.format("statestore")
        with _reading(self.path):
            rows = reader.options(batchId=self.batch, operatorId=number).load(self.path)
        key, value = (rows.schema[name].dataType for name in ("key", "value"))
        assert isinstance(key, StructType)
        assert isinstance(value, StructType)
        if nested := [field.name for field in key if isinstance(field.dataType, StructType)]:
            raise self._refusal(
                f"operator {number} keeps its state by '{nested[0]}', a struct. If it is a window: "
                "state of open windows cannot be imported; let them close, and start without it"
            )
        keys = [sf.col("key").getField(field.name).alias(field.name) for field in key]
        if self.operators[number] == AGGREGATION:
            return rows.select(*keys, *self._results(value, functions))
        if functions:
            raise self._refusal(f"operator {number} is no aggregation: it has no functions")
        return with_state(rows, keys)

    def _only(self, operator: int | None) -> int:
        if operator is None and len(self.operators) == 1:
            (operator,) = self.operators
        if operator is None or operator not in self.operators:
            listed = ", ".join(f"{number} ({kind})" for number, kind in self.operators.items())
            listed = listed or "it has none, or a Spark before 4.0 has written it"
            raise self._refusal(f"name one of its stateful operators: {listed}")
        if (kind := self.operators[operator]) not in (AGGREGATION, WITH_STATE):
            raise self._refusal(
                f"operator {operator} is of kind {kind}; only the state of aggregations "
                f"({AGGREGATION}) and of {WITH_STATE} can be imported"
            )
        return operator

    def _results(self, value: StructType, functions: Mapping[str, Aggregate]) -> list[Column]:
        """The columns of an aggregate's state, from what Spark keeps for the same functions."""
        buffers = _buffers(value)
        kept = [name for name, _ in buffers]
        wanted: list[tuple[str, str | None]] = []
        for result, function in functions.items():
            if not isinstance(function, Aggregate):
                raise ConfigError(
                    f"'{result}' must be a function such as count(), not {function!r}"
                )
            if function.spark_buffer is None:
                raise ConfigError(
                    f"{result} = {function} does not say what Spark keeps for it; give its class a "
                    "`spark_buffer`, or make the columns of its state yourself"
                )
            for name, suffix in function.spark_buffer.items():
                wanted.append((name, None if suffix is None else result + suffix))
        if (given := [name for name, _ in wanted]) != kept:
            raise self._refusal(
                f"its aggregation keeps {', '.join(kept)}, and the functions given keep "
                f"{', '.join(given) or 'nothing'}; name those of the old query, in its order, "
                "as in state(n=godwit.count(), mean=godwit.avg('price'))"
            )
        columns = zip(wanted, buffers, strict=True)
        return [buffer.alias(column) for (_, column), (_, buffer) in columns if column is not None]

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(f"Spark's checkpoint {self.path}: {reason}")


def spark_checkpoint(spark: SparkSession, path: str | PathLike[str]) -> SparkCheckpoint:
    """The checkpoint of a query that ran with Spark's own operators, to go on from.

    It may lie on any filesystem that Spark reads. Stop the query before: what it commits after this
    call is not taken over. Raises CheckpointError.

    >>> before = spark_checkpoint(spark, home / "old")  # of words.groupBy("word").count()
    >>> before.batch, before.operators  # job.start(..., after=before)
    (0, {0: 'stateStoreSave'})
    """
    text = fspath(path)
    with _reading(text), scratch() as copy:
        if _exists(spark, f"{text}/{HOME}/{FORMAT}"):
            raise CheckpointError(text, "it is Godwit's; start the query on it, as it is")
        for name in (spark_log.METADATA, spark_log.OFFSETS, spark_log.COMMITS):
            if not _exists(spark, f"{text}/{name}"):
                raise CheckpointError(
                    text,
                    f"there is no checkpoint of a Spark query here: {name} is missing. Name the "
                    "directory that the query was given as checkpointLocation",
                )
            _copy(spark, f"{text}/{name}", copy.address(name))
        id, batch = spark_log.query_id(copy), spark_log.newest_commit(copy)
        offsets = {
            number: copy.read(f"{spark_log.OFFSETS}/{number}").decode()
            for number in spark_log.epochs(copy, spark_log.OFFSETS)
        }
        operators = _operators(spark, text)
    if any(query.id == id for query in spark.streams.active):
        raise CheckpointError(text, "its query is running; stop it first")
    if batch is None:
        raise CheckpointError(text, "it has committed no batch: there is nothing to go on from")
    needed = {number: log for number, log in offsets.items() if abs(number - batch) <= 1}
    for number in (max(batch - 1, 0), batch, *needed):
        if not needed.get(number, "").startswith("v1\n"):
            raise CheckpointError(
                text, f"its offsets of batch {number} are missing, or of a format that is not known"
            )
    return SparkCheckpoint(spark, text, batch, needed, operators)


def check_new(history: History) -> None:
    """Refuse a checkpoint that has a log of its own: it cannot go on from another one's."""
    log = history.checkpoint.within(SPARK)  # whose directories Spark makes before any file
    if history.intents() or log.list_files("") or log.exists(spark_log.OFFSETS):
        raise CheckpointError(
            str(history.checkpoint),
            "it is not new, so nothing can be imported; name another directory",
        )


def check_sources(old: SparkCheckpoint, sources: int) -> None:
    """Refuse a query that reads another number of sources than the old one."""
    if not isinstance(old, SparkCheckpoint):
        raise ConfigError(f"`after` must be what godwit.spark_checkpoint returns, not {old!r}")
    before = len(old.offsets[old.batch].splitlines()) - 2
    if sources != before:
        raise ConfigError(
            f"the query of Spark's checkpoint {old.path} read {before} sources, and this one reads "
            f"{sources}; it can go on from there only with the same sources, in the same order"
        )


def go_on(
    driver: Driver,
    old: SparkCheckpoint,
    initial: Mapping[str, Mapping[str, DataFrame]],
    pinning: Pinning,
    staged: FencedDirectory,
    sources: int,
) -> None:
    """Make a new checkpoint's epoch of the old query's batch, with its offsets and this state.

    `staged` is Spark's log as this driver's Spark addresses it: one that was fenced off has no such
    place. Interrupted, this leaves logs that disagree, on which no query starts.
    """
    try:
        staged.fill(lambda log: _seed(old, log, sources))  # whole: a part of it must not count
    except OSError:
        driver.journal.check()
        raise
    log = driver.checkpoint.within(SPARK)
    query, offsets = spark_log.query_id(log), spark_log.offsets_digest(log, old.batch)
    assert query is not None
    assert offsets is not None
    load(driver, initial, pinning, epoch=Epoch(old.batch), query=query, offsets=offsets)


def _seed(old: SparkCheckpoint, log: LocalStore, sources: int) -> None:
    """Make a log of Spark's that goes on from the old query's batch, of a query with `sources`.

    Sources are known by their number: those of the old query come first, further ones are new. A
    batch that the old query had begun and not committed is run again, with the same offsets.
    """
    log.create(spark_log.METADATA, json.dumps({"id": str(uuid.uuid4())}).encode())
    for number, text in old.offsets.items():
        lines = text.splitlines()
        lines += [_NO_OFFSET] * (sources + 2 - len(lines))
        log.create(f"{spark_log.OFFSETS}/{number}", "\n".join(lines).encode())
    log.create(f"{spark_log.COMMITS}/{old.batch}", _COMMIT.encode())
    with _reading(old.path):
        if _exists(old.spark, f"{old.path}/{SOURCES}"):
            _copy(old.spark, f"{old.path}/{SOURCES}", log.address(SOURCES))


def _operators(spark: SparkSession, path: str) -> dict[int, str]:
    """The names of the stateful operators by their numbers; a query without any has no state."""
    if not _exists(spark, f"{path}/state"):
        return {}
    rows = spark.read.format("state-metadata").load(path)
    return {row.operatorId: row.operatorName for row in rows.collect()}


def _buffers(value: StructType) -> list[tuple[str, Column]]:
    """What Spark keeps for its functions, one after the other, by the names that it has for them.

    Two functions may keep columns of the same name, so these are told by their places.
    """
    places = StructType([StructField(str(n), field.dataType) for n, field in enumerate(value)])
    columns = [sf.col("value").cast(places).getField(name) for name in places.names]
    buffers: list[tuple[str, Column]] = []
    for name, column in zip(value.names, columns, strict=True):
        if name == "isEmpty":  # of the sum of decimals before it, which is 0 until there is a value
            name, total = buffers.pop()
            column = sf.when(~column, total)
        buffers.append((name, column))
    return buffers


def with_state(rows: DataFrame, keys: list[Column]) -> DataFrame:
    """Key, state and timeout; a key that has nothing but a timeout has no state."""
    columns = [*keys, sf.col("value.groupState.*")]
    if "timeoutTimestamp" in rows.select("value.*").columns:
        millis = sf.col("value.timeoutTimestamp")
        columns.append(sf.when(millis >= 0, sf.timestamp_millis(millis)).alias("timeout"))
    return rows.where("value.groupState IS NOT NULL").select(*columns)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Say in one line why a checkpoint cannot be read."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        reason = str(text).partition("\n")[0]
        raise CheckpointError(path, f"it cannot be read: {reason}") from None
    except DamagedFileError as error:  # of a copy
        raise CheckpointError(
            path, f"its file {error.path.rpartition('/')[2]} {error.reason}"
        ) from None


def _exists(spark: SparkSession, path: str) -> bool:
    origin, files, _ = _hadoop(spark, path)
    return bool(files.exists(origin))


def _copy(spark: SparkSession, path: str, target: str) -> None:
    """Copy a file or directory, from any filesystem that Spark reads, to this machine."""
    origin, files, settings = _hadoop(spark, path)
    hadoop = _packages(spark)
    here = hadoop.FileSystem.getLocal(settings).getRawFileSystem()  # which writes no checksums
    hadoop.FileUtil.copy(files, origin, here, hadoop.Path(target), False, settings)


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any, Any]:
    """A path as Hadoop's, its filesystem, and Hadoop's settings."""
    settings = spark._jsc.hadoopConfiguration()
    origin = _packages(spark).Path(path)
    return origin, origin.getFileSystem(settings), settings


def _packages(spark: SparkSession) -> Any:
    assert spark._jvm is not None  # the session lives in this process
    return spark._jvm.org.apache.hadoop.fs
