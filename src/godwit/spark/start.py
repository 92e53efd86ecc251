"""Starting a query on Spark, or going on with the one in a checkpoint."""

import logging
import tempfile
import threading
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from godwit.driver.driver import Driver
from godwit.driver.published import INITIAL
from godwit.errors import CheckpointError, ConfigError
from godwit.log import spark_log
from godwit.log.history import History
from godwit.log.layout import SPARK, TICKS
from godwit.model.options import AvailableNow, Options, Trigger
from godwit.model.time import micros
from godwit.spark.dataflow import Dataflow, operators_of
from godwit.spark.epoch import Engine, Listener
from godwit.spark.executors import is_alone
from godwit.spark.initial_state import Initial, load, load_added, tables_of
from godwit.spark.logical_plan import sources
from godwit.spark.peer_secret import peer_key
from godwit.spark.pinning import Pinning
from godwit.spark.prefold import check_partials
from godwit.spark.settings import settings
from godwit.spark.settings_check import check
from godwit.spark.spark_checkpoint import SparkCheckpoint, check_new, check_sources, go_on
from godwit.spark.start_check import check_checkpoint, check_start
from godwit.spark.ticks import with_ticks
from godwit.spark.unread_files import SOURCES, FileSource, UnreadWatch
from godwit.spark.update_stream import with_control
from godwit.state.cache import CacheSpec
from godwit.storage.location import Location, open_store

# Spark keeps its log of a query by Hadoop's FileContext, which starts several shells a file where
# Hadoop's native library is missing. FileSystem starts none; Spark itself uses it elsewhere.
START_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # Spark would turn it off by itself, with a warning
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
log = logging.getLogger("godwit")

_STARTING = threading.Lock()  # starts share the user's session, whose settings they change


def start(
    flow: Dataflow,
    checkpoint: Location,
    *,
    workers: int | None,
    trigger: Trigger | None,
    options: Options,
    initial: Initial | None,
    drop: Collection[str],
    after: SparkCheckpoint | None,
    listener: Listener | None,
    control: DataFrame | None,
) -> tuple[StreamingQuery, Engine]:
    """Start a query that brings records through a dataflow, or go on with it."""
    source, graph = flow.rows, flow.graph
    if after is not None:
        check_sources(after, sources(source))
    files = FileSource.all(source)
    if control is not None:
        source = with_control(source, control)
    spark = source.sparkSession
    store = open_store(checkpoint, to_write=True)
    check_checkpoint(store, files)
    operators = operators_of(flow)
    for operator in operators:
        check_partials(spark, operator)
    given = tables_of(initial or {}, operators)
    interval = 0 if trigger is None or isinstance(trigger, AvailableNow) else micros(trigger)
    copies = check(spark.sparkContext, options.replicas)
    key = peer_key(spark.sparkContext, options.replication) if copies else None
    history = History(store)
    spark_log.agree(history)
    check_start(spark, flow, str(store))
    if not given and history.last() is None and INITIAL in history.intents():
        raise CheckpointError(
            str(store),
            "the load of its initial state was interrupted. Give the initial state again, or "
            "delete the checkpoint: it has published nothing",
        )
    if after is not None and history.last() is None:
        check_new(history)
        if after.operators and initial is None:
            raise ConfigError(
                f"the query of Spark's checkpoint {after.path} has state; give it as "
                "initial={...}, or initial={} to go on without it"
            )
    cache = CacheSpec(
        f"godwit-{uuid.uuid4().hex}",
        options.cache_bytes,
        _local_directory(spark),
        options.fetch_rate,
    )
    _tell_takeover(history)
    driver = Driver(
        store,
        operators,
        graph=graph,
        drop=drop,
        workers=workers,
        bins=options.bins,
        default_workers=spark.sparkContext.defaultParallelism,
        retention=options.retention,
        cache=cache,
        replicas=copies,
        peer_key=key,
    )
    try:
        return _launch(
            driver,
            flow,
            source,
            trigger=trigger,
            interval=interval,
            options=options,
            given=given,
            after=after,
            listener=listener,
            controlled=control is not None,
            files=files,
        )
    except BaseException:
        with suppress(Exception):  # another driver may have taken over
            driver.journal.end()
        raise


def _launch(
    driver: Driver,
    flow: Dataflow,
    source: DataFrame,
    *,
    trigger: Trigger | None,
    interval: int,
    options: Options,
    given: dict[str, dict[str, DataFrame]],
    after: SparkCheckpoint | None,
    listener: Listener | None,
    controlled: bool,
    files: Sequence[FileSource],
) -> tuple[StreamingQuery, Engine]:
    """Load what the first epoch needs, and let Spark begin."""
    spark, store = source.sparkSession, driver.checkpoint
    pinning = Pinning(spark)
    log = driver.journal.spark_log()
    ticking = with_ticks(source, driver.files.url(TICKS))
    with _STARTING:
        if driver.published.epoch is not None:
            load_added(driver, given, pinning)
        elif after is not None:
            go_on(driver, after, given, pinning, log, sources(ticking))
        elif given:
            load(driver, given, pinning)
    engine = Engine(
        driver,
        flow,
        pinning,
        UnreadWatch(files, store.within(SPARK).within(SOURCES)),
        query_name=options.query_name,
        listener=listener,
        controlled=controlled,
        interval=interval / 1e6,
        is_bounded=isinstance(trigger, AvailableNow),
    )
    writer = ticking.writeStream.foreachBatch(engine).option("checkpointLocation", log.url)
    if options.query_name:
        writer = writer.queryName(options.query_name)
    if isinstance(trigger, AvailableNow):
        writer = writer.trigger(availableNow=True)
    elif interval:
        writer = writer.trigger(processingTime=f"{interval} microseconds")
    with _STARTING, settings(spark, START_SETTINGS | _retaining(spark, options.retention)):
        return writer.start(), engine


def _tell_takeover(history: History) -> None:
    drivers = history.generations()
    if drivers and drivers[-1].is_running:
        log.warning(
            "taking over from %s, which runs this query and will fail with FencedError",
            drivers[-1],
        )


def _retaining(spark: SparkSession, retention: int) -> dict[str, str]:
    """Spark's log reaches as far back as ours, so that every retained epoch can be restored."""
    name = "spark.sql.streaming.minBatchesToRetain"
    return {name: str(max(int(spark.conf.get(name) or 0), retention + 1))}


def _local_directory(spark: SparkSession) -> str | None:
    """On one machine: Spark's scratch directory. On a cluster each executor knows its own."""
    if not is_alone(spark.sparkContext):
        return None
    return (spark.conf.get("spark.local.dir", None) or tempfile.gettempdir()).split(",")[0]
