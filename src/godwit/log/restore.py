"""Rolling a checkpoint back to a retained epoch."""

from collections.abc import Iterator

from godwit.errors import CheckpointError
from godwit.log import spark_log
from godwit.log.history import History
from godwit.log.journal import Journal
from godwit.log.layout import HOME, SPARK, intent_name, manifest_name, request_name
from godwit.model.manifest import Manifest
from godwit.storage.location import Location, open_store


def restore(checkpoint: Location, epoch: int, *, durable: bool = True) -> Manifest:
    """Roll a checkpoint back to the end of a retained epoch, and return its manifest.

    A running driver is fenced off. What came after the epoch, in Godwit's log and in Spark's, is
    moved to `godwit/undone/GENERATION/`, also the requests for later epochs.
    When interrupted, restore again: until then the two logs disagree and no query starts on them,
    or nothing but Spark's newest commit has moved.
    """
    store = open_store(checkpoint, to_write=True, durable=durable)
    _check(History.inspect(store), epoch)
    journal = Journal.open(store)
    manifest = _check(journal, epoch)
    for name in _later(journal, epoch):
        journal.put_aside(name)
    journal.end()
    return manifest


def _check(history: History, epoch: int) -> Manifest:
    """Refuse an epoch that cannot be restored, before anything is changed."""
    manifest = history.manifest(epoch)
    if manifest is None:
        epochs = history.epochs()
        retained = f"from {epochs[0]} to {epochs[-1]}" if epochs else "none"
        raise CheckpointError(
            str(history.checkpoint),
            f"epoch {epoch} is not retained, so it cannot be restored; retained epochs: {retained}",
        )
    there = spark_log.newest_offsets(history.checkpoint.within(SPARK))
    simulated = there is None and manifest.query == spark_log.NO_SPARK
    if simulated or spark_log.is_common(history, epoch):
        return manifest
    if there is None:
        raise CheckpointError(
            str(history.checkpoint),
            f"epoch {epoch} cannot be restored: Spark's log, in spark/, is empty or was deleted, "
            f"and no query would start without it. {spark_log.next_step(history)}",
        )
    raise CheckpointError(
        str(history.checkpoint),
        f"epoch {epoch} cannot be restored: Spark's log does not hold it, or with other "
        "offsets. Choose an epoch that spark/offsets names, or restore a backup",
    )


def _later(journal: Journal, epoch: int) -> Iterator[str]:
    """The names of the files of later epochs.

    The order makes Spark's log fall behind the manifests first, which is refused at a start, and
    lets the manifests follow last: no prefix of these moves looks like a sound checkpoint that
    still holds an intent or a request from after the epoch.
    """
    spark = journal.checkpoint.within(SPARK)
    for log in (spark_log.COMMITS, spark_log.OFFSETS):
        for number in reversed(spark_log.epochs(spark, log)):
            for file in (str(number), f".{number}.crc"):
                if number > epoch and spark.exists(f"{log}/{file}"):
                    yield f"{SPARK}/{log}/{file}"
    names = [request_name(number) for number in _later_requests(journal, epoch)]
    names += [intent_name(number) for number in journal.intents() if number > epoch]
    for number in reversed([number for number in journal.epochs() if number > epoch]):
        names += [*journal.addition_names(number), manifest_name(number)]
    yield from (f"{HOME}/{name}" for name in names)


def _later_requests(journal: Journal, epoch: int) -> Iterator[int]:
    """The schedules for later epochs, and all else that was not taken in up to this one."""
    intent = journal.intent(epoch)
    taken = intent.taken if intent else 0
    for number in journal.requests.ids():
        last = journal.requests.last(number)
        if number > taken if last is None else last > epoch:
            yield number
