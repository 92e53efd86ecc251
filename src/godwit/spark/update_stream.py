"""Control as data: a stream of updates next to the records."""

from collections import defaultdict

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from godwit.errors import ConfigError
from godwit.model.ids import BinId, WorkerId
from godwit.model.requests import StreamedUpdates
from godwit.spark.route import column

CONTROL = "_control"

_COLUMNS = StructType(
    [StructField(name, StringType()) for name in ("id", "operator")]
    + [StructField(name, LongType()) for name in ("epoch", "bin", "worker", "workers")]
)
_NEEDED = ("id", "bin", "worker")


def with_control(records: DataFrame, updates: DataFrame) -> DataFrame:
    """`records`, and rows that have nothing but an update in the column `_control`."""
    if not updates.isStreaming:
        raise ConfigError("control must be a streaming DataFrame: use spark.readStream")
    if missing := [name for name in _NEEDED if name not in updates.columns]:
        raise ConfigError(f"control lacks column '{missing[0]}'; it has {_COLUMNS.names}")
    if strange := [name for name in updates.columns if name not in _COLUMNS.names]:
        raise ConfigError(f"control has a column '{strange[0]}'; it may have {_COLUMNS.names}")
    update = sf.struct(*(_field(updates, field) for field in _COLUMNS.fields))
    nothing = [sf.lit(None).cast(f.dataType).alias(f.name) for f in records.schema]
    tagged = records.select(sf.lit(None).cast(_COLUMNS).alias(CONTROL), "*")
    return tagged.union(updates.select(update.alias(CONTROL), *nothing))


def _field(updates: DataFrame, field: StructField) -> Column:
    given = column(field.name) if field.name in updates.columns else sf.lit(None)
    return given.try_cast(field.dataType).alias(field.name)  # null is refused, with the reason


def split(batch: DataFrame) -> tuple[list[StreamedUpdates], DataFrame]:
    """The updates in an epoch's batch, one for each id, and its records."""
    rows = batch.where(column(CONTROL).isNotNull()).select(f"{CONTROL}.*").collect()
    by_id: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_id[row.id or ""].append(row)
    updates = [_updates(id, by_id[id]) for id in sorted(by_id)]
    return updates, batch.where(column(CONTROL).isNull()).drop(CONTROL)


def _updates(id: str, rows: list[Row]) -> StreamedUpdates:
    def number(value: int | None) -> int:
        return -1 if value is None else value  # which is refused, with the reason

    found = {(row.epoch, BinId(number(row.bin)), WorkerId(number(row.worker))) for row in rows}
    updates = sorted(found, key=repr)
    operators = {row.operator for row in rows}
    workers = {row.workers for row in rows if row.workers is not None}
    bins = {(epoch, bin) for epoch, bin, _ in updates}
    if not id or len(operators) > 1 or len(workers) > 1 or len(bins) < len(updates):
        return StreamedUpdates(id, None, ())  # which is refused, as it says nothing
    return StreamedUpdates(id, operators.pop(), tuple(updates), workers.pop() if workers else None)
