"""A whole query, ready to start."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Never

from godwit.api.query import Query
from godwit.errors import ConfigError
from godwit.model.options import AvailableNow, Options, Trigger, closest_name
from godwit.spark.dataflow import Dataflow
from godwit.spark.epoch import Listener
from godwit.spark.initial_state import Initial
from godwit.spark.spark_checkpoint import SparkCheckpoint
from godwit.spark.start import start
from godwit.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query(*jobs: Job) -> Job:
    """One query of several streams that end in sinks; operators that they share run once.

    >>> import godwit as gw
    >>> words = gw.stream("word string").aggregate("counts", key="word", n=gw.count())
    >>> longest = words.aggregate("most", key="n", words=gw.count())
    >>> job = gw.query(words.to(gw.files("counts")), longest.to(gw.files("most")))
    >>> from godwit.testing import Simulation
    >>> simulation = Simulation(job)
    >>> simulation.feed([{"word": "to"}, {"word": "be"}])
    >>> simulation.outputs(sink=1)
    [{'n': 1, 'words': 2}]
    """
    if not jobs:
        raise ConfigError("a query has at least one sink: gw.query(stream.to(sink), ...)")
    for job in jobs:
        if not isinstance(job, Job):
            raise ConfigError(
                "a query is made of streams that end in sinks, gw.query(one.to(sink), ...), not of "
                f"{job!r}"
            )
    flow = Dataflow(tuple(end for job in jobs for end in job._flow.ends))
    flow.check()
    return Job(flow)


@dataclass(frozen=True, slots=True)
class Job:
    """A whole query: start it on Spark, or test it without (`godwit.testing.Simulation`).

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> words = gw.stream("word string").aggregate("counts", key="word", n=gw.count())
    >>> job = words.to(gw.files("output"))
    >>> simulation = Simulation(job)
    >>> simulation.feed([{"word": "to"}, {"word": "be"}, {"word": "to"}])
    >>> sorted((row["word"], row["n"]) for row in simulation.outputs())
    [('be', 1), ('to', 2)]
    """

    _flow: Dataflow

    def __repr__(self) -> str:
        return f"<Job of {', '.join(self._flow.operators)}>"

    def start(
        self,
        checkpoint: Location,
        *,
        workers: int | None = None,
        trigger: Trigger | None = None,
        options: Options | None = None,
        initial: Initial | None = None,
        drop: Collection[str] = (),
        after: SparkCheckpoint | None = None,
        listener: Listener | None = None,
        control: DataFrame | None = None,
        **unknown: Never,
    ) -> Query:
        """Start the query, or go on with the one in `checkpoint`.

        - `checkpoint`: a path, a URL such as `s3://bucket/query`, or what `object_store` and
          `local_store` make.
        - `workers`: by default what the checkpoint says; in a new one Spark's default parallelism.
          A number counts at the first start that names it. Later starts that name it again leave
          the routing as migrations have made it.
        - `trigger`: the time from one epoch to the next, such as `"5 seconds"`, or
          `gw.available_now()`. By default an epoch runs as soon as there is data.
        - `options`: what most queries leave as it is, see `Options`.
        - `initial`: the first state of a new checkpoint, or of operators that are new in one,
          by operator (and table).
        - `drop`: operators that the checkpoint has and the query has no longer; their state is
          deleted.
        - `after`: a new checkpoint goes on from the offsets of this query of Spark's own, over the
          same sources.
        - `listener`: is called with an `EpochReport` after each epoch. The logger `godwit` gets the
          same as a line.
        - `control`: a stream of updates with the columns id, bin and worker, if wanted also
          operator, epoch (else the next one) and workers, their new number. Rows of one id that an
          epoch reads are one request, and an id counts once (the last 200 are remembered).

        Raises ConfigError, CheckpointError, IncompatibleError, FencedError and DamagedFileError.
        """
        for name in unknown:
            raise ConfigError(_unknown(name))
        self._flow.check()
        if any(source.rows is None for source in self._flow.sources):
            raise ConfigError(
                "this job is over a schema, so it can be simulated, but not started: describe it "
                "again over a streaming DataFrame, gw.stream(spark.readStream...)"
            )
        running, engine = start(
            self._flow,
            checkpoint,
            workers=workers,
            trigger=trigger,
            options=options or Options(),
            initial=initial,
            drop=drop,
            after=after,
            listener=listener,
            control=control,
        )
        return Query(running, engine, available_now=isinstance(trigger, AvailableNow))


def _unknown(name: str) -> str:
    """What to say of an option that `start` does not have."""
    own = [
        option for option in signature(Job.start).parameters if option not in ("self", "unknown")
    ]
    grouped = list(Options.__dataclass_fields__)
    meant = closest_name(name, [*own, *grouped])
    if meant in grouped:
        return f"start has no option '{name}'; did you mean options=gw.Options({meant}=...)?"
    if meant:
        return f"start has no option '{name}'; did you mean '{meant}'?"
    return f"start has no option '{name}'; it has {', '.join(own)}"
