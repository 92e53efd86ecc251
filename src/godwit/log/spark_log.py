"""Spark's own log, as it lies in its checkpoint directory, and whether Godwit's agrees with it.

Spark writes offsets/N before epoch N runs and commits/N after it. A file holds `v1`, a line of JSON
about the batch (such as its wall-clock time) and, in offsets, one line per source.
"""

import hashlib
import json

from godwit.errors import CheckpointError, DamagedFileError
from godwit.log.history import History
from godwit.log.layout import SPARK
from godwit.model.ids import Epoch
from godwit.storage.store import Store

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
NO_SPARK = "simulation"  # instead of a query id: the in-memory runtime leaves no log of Spark

_BACKUP = "Restore the whole checkpoint, spark/ and godwit/, from one backup"


def query_id(spark: Store) -> str | None:
    """Spark's id of the query, the same over restarts; None before its first start."""
    try:
        return str(json.loads(spark.read(METADATA))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError) as error:
        reason = "does not hold the id of a Spark query; restore the checkpoint from a backup"
        raise DamagedFileError(spark.address(METADATA), reason) from error


def epochs(spark: Store, log: str) -> list[int]:
    """The epochs in Spark's `offsets` or `commits`, in order. Spark prunes old ones."""
    return sorted(int(name) for name in spark.names(log) if name.isdecimal())


def newest_offsets(spark: Store) -> int | None:
    """The newest epoch that Spark has planned."""
    return max(epochs(spark, OFFSETS), default=None)


def newest_commit(spark: Store) -> int | None:
    """The newest epoch that Spark knows to be done."""
    return max(epochs(spark, COMMITS), default=None)


def offsets_digest(spark: Store, epoch: int) -> str | None:
    """What identifies the input of an epoch: a digest of its sources' offsets, not of its time."""
    name = f"{OFFSETS}/{epoch}"
    try:
        version, *lines = spark.read(name).split(b"\n")
    except FileNotFoundError:
        return None
    if not version.startswith(b"v") or len(lines) < 2:
        reason = "is not a whole offsets file of Spark; restore the checkpoint from a backup"
        raise DamagedFileError(spark.address(name), reason)
    return hashlib.sha256(b"\n".join(lines[1:])).hexdigest()


def source_offsets(spark: Store, epoch: int) -> list[str]:
    """The offsets that each source has reached with an epoch, as JSON; `-` where it has none."""
    return spark.read(f"{OFFSETS}/{epoch}").decode().splitlines()[2:]


def planned_at(spark: Store, epoch: int) -> float:
    """When Spark planned an epoch, in seconds since 1970: what came later is in the next one."""
    metadata = spark.read(f"{OFFSETS}/{epoch}").splitlines()[1]
    return float(json.loads(metadata)["batchTimestampMs"]) / 1000


def agree(history: History) -> None:
    """Raise CheckpointError, with the next step, unless Spark's log and Godwit's fit together.

    They fit if Godwit published what Spark committed, at most the epoch in flight besides, and all
    of it over the input that Spark's log names.
    """
    seen: list[Epoch] | None = None
    problem: str | None = None
    while (published := history.epochs()) != seen:  # a driver that runs may publish meanwhile
        seen, problem = published, _disagreement(history)
        if problem is None:
            return
    raise CheckpointError(str(history.checkpoint), f"{problem}. {next_step(history)}")


def _disagreement(history: History) -> str | None:
    spark = history.checkpoint.within(SPARK)
    last = history.last()
    published = last.epoch if last else -1
    planned = max(epochs(spark, OFFSETS), default=-1)
    committed = max(epochs(spark, COMMITS), default=-1)
    if published >= 0 > planned:
        return f"Godwit published epoch {published}, but Spark's log is empty or was deleted"
    if committed > published:
        return f"Spark committed epoch {committed}, but Godwit's log ends at epoch {published}"
    if published > planned:
        return f"Godwit published epoch {published}, but Spark's offsets end at epoch {planned}"
    if published > committed + 1:
        return f"Godwit published epoch {published}, but Spark's commits end at epoch {committed}"
    for step in (last, history.intent(published + 1)):
        if step is None or step.epoch < 0:
            continue
        if step.query != (query := query_id(spark)):
            return f"epoch {step.epoch} is of query {step.query}, but Spark's log of query {query}"
        if step.offsets != (digest := offsets_digest(spark, step.epoch)):
            found = "no offsets for it" if digest is None else "other offsets for it"
            return f"Godwit began epoch {step.epoch}, but Spark's log now has {found}"
    return None


def is_common(history: History, epoch: int) -> bool:
    """Whether both logs can be rolled back to an epoch: both hold it, with the same input."""
    spark = history.checkpoint.within(SPARK)
    manifest = history.manifest(epoch)
    if manifest is None or epoch < 0:
        return manifest is not None
    return (
        epoch <= max(epochs(spark, COMMITS), default=-1) + 1
        and manifest.query == query_id(spark)
        and manifest.offsets == offsets_digest(spark, epoch)
    )


def next_step(history: History) -> str:
    """What to do about logs that do not fit together, as a sentence without its end."""
    retained = history.epochs()
    for epoch in reversed(retained):
        if is_common(history, epoch):
            return (
                f"{_BACKUP}, or godwit.restore(checkpoint, {epoch}), the newest epoch of both logs"
            )
    if retained:
        return f"{_BACKUP}, or start a new one with the state of this one as its initial state"
    return f"{_BACKUP}, or delete this one: it has published nothing"
