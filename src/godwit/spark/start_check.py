"""What is checked before a query starts, so that a mistake is one message and not Spark's log."""

import re
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from godwit.errors import ConfigError
from godwit.log.layout import HOME
from godwit.log.spark_log import METADATA, OFFSETS
from godwit.spark.dataflow import Dataflow, describe, operators_of
from godwit.spark.executors import done, prepare
from godwit.spark.hosts import LocalDirectories
from godwit.spark.sinks.lake_sink import LakeSink
from godwit.spark.sinks.sink import FileTaker, Maker, Sink
from godwit.spark.unpicklable import check_operators
from godwit.spark.unread_files import FileSource
from godwit.storage.directories import check_writable, lies_in
from godwit.storage.location import Location, open_store
from godwit.storage.store import Store

# They tell of each attempt of a task that fails; what failed it is told once, by the error.
_LOUD: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.api.python.PythonWorkerFactory",
)
_checked: set[tuple[str, str]] = set()  # applications, and what their Python can import


def check_checkpoint(store: Store, sources: Iterable[FileSource]) -> None:
    """Raise ConfigError if a checkpoint cannot be written, is Spark's or would be read as input."""
    check_writable(store, "checkpoint")
    top = set(store.names(""))
    if {METADATA, OFFSETS} <= top and HOME not in top:
        raise ConfigError(
            f"the checkpoint {store} is that of a query of Spark's own. Name a new directory; to "
            f"go on from this one, start with after=gw.spark_checkpoint(spark, '{store}'), as "
            "docs/guide/from-spark.md tells"
        )
    for source in sources:
        for directory in source.directories():
            if lies_in(store, directory):
                raise ConfigError(
                    f"the checkpoint {store} lies in {directory}, which the query reads as its "
                    "input; name a directory outside of it"
                )


def check_start(
    spark: SparkSession,
    flow: Dataflow,
    checkpoint: Location,
) -> None:
    """Raise ConfigError if executors cannot run Godwit, be sent an operator or reach what they have
    to write to, or if a sink refuses the output."""
    hush_pandas()
    check_operators(operators_of(flow))
    makers, others = [], []
    for node, sink in flow.outlets:
        assert node.schema is not None  # of a flow over DataFrames
        if isinstance(sink, Maker):
            makers.append((sink, node.schema))
            sink.refuse(spark, node.schema, checkpoint)
        else:
            others.append((sink, node.schema))
    writing = [sink for _, sink in flow.outlets if isinstance(sink, LakeSink) and sink.by_tasks]
    check_python(spark, *(sink.module for sink in writing))
    LocalDirectories(flow, open_store(checkpoint)).check(spark)
    for sink, schema in [*others, *makers]:  # so nothing is made while one refuses the output
        # One of the user's is told a text.
        told: Any = checkpoint if isinstance(sink, FileTaker | Maker) else str(checkpoint)
        sink.check(spark, schema, told)
    check_identities(spark, [sink for sink, _ in makers])


def check_identities(spark: SparkSession, sinks: Sequence[Sink]) -> None:
    """Refuse two names of one place. A sink that is the only one of its kind is not asked."""
    kinds = Counter(map(type, sinks))
    found: dict[Hashable, Sink] = {}
    for sink in sinks:
        if isinstance(sink, Maker) and kinds[type(sink)] > 1:
            first = found.setdefault((type(sink), sink.identity(spark)), sink)
            if first is not sink:
                raise ConfigError(
                    f"two streams end in {describe(first)}, which is also {describe(sink)}; name "
                    "another place for one of them"
                )


def hush_pandas() -> None:
    """Spark warns of pandas 3 whenever a function works on Arrow data, as all of Godwit's do, and
    none of them uses pandas."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def check_python(spark: SparkSession, *modules: str) -> None:
    """Run a task in Python that imports modules, once an application: the first epoch finds its
    process ready."""
    context = spark.sparkContext
    wanted = {(context.applicationId, module) for module in ("godwit", *modules)}
    if wanted <= _checked:
        return
    task = spark.range(0, 1, 1, 1).mapInArrow(
        partial(done, partial(prepare, *modules)), "executor string, host string"
    )
    try:
        with _silenced(spark):
            task.collect()
    except Exception as error:
        if (why := explain(str(error))) is None:
            raise
        raise ConfigError(
            f"executors cannot run Godwit with the Python '{context.pythonExec}': {why}"
        ) from None
    _checked.update(wanted)


def explain(error: str) -> str | None:
    """What is wrong with the Python of executors, and the next step; None if it is something else.

    >>> explain('IOException: Cannot run program "pyhton": error=2, No such file or directory')
    'no such file or directory. Set PYSPARK_PYTHON to the Python that runs this program'
    >>> explain("ValueError: no")
    """
    if found := re.search(r'Cannot run program "[^"]*".*?error=\d+, ([^\n]+)', error):
        return f"{found[1][0].lower()}{found[1][1:]}. {_NEXT}"
    if found := re.search(r"different version: (\S+) than that in driver:? (\S+?),?\s", error):
        return f"it is Python {found[1]}, but this program runs with Python {found[2]}. {_NEXT}"
    if found := re.search(r"No module named '?([\w.]+)", error):
        return (
            f"it has no module '{found[1]}'. Install Godwit there as you did here, or set "
            "PYSPARK_PYTHON to the Python that runs this program"
        )
    return None


_NEXT = "Set PYSPARK_PYTHON to the Python that runs this program"


@contextmanager
def _silenced(spark: SparkSession) -> Iterator[None]:
    """Without what Spark's driver logs of tasks that fail, where it logs by log4j."""
    log4j: Any = spark.sparkContext._jvm
    log4j = log4j.org.apache.logging.log4j
    try:
        context = log4j.LogManager.getContext(False)
        set_level = log4j.core.config.Configurator.setLevel
        configuration = context.getConfiguration()
        own = {name: configuration.getLoggerConfig(name) for name in _LOUD}
    except Exception:  # another logging library, which has none of these
        yield
        return
    levels = {name: one.getLevel() for name, one in own.items() if one.getName() == name}
    for name in _LOUD:
        set_level(name, log4j.Level.OFF)
    try:
        yield
    finally:
        for name in _LOUD:
            if name in levels:
                set_level(name, levels[name])
            else:  # it has the level of the one above, whatever that is set to later
                configuration.removeLogger(name)
        context.updateLoggers()
