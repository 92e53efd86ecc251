"""Outputs in a table of Spark's catalog."""

from collections.abc import Hashable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.spark.sinks.sink import EPOCH, Maker, Sink, check_no_epoch, with_epoch


def table(name: str) -> Sink:
    """A Spark table partitioned by a column `epoch`, made if missing: an epoch is one partition.

    >>> table("counts").guarantee.partition(",")[0]
    'exactly once'
    """
    return TableSink(name)


@dataclass(frozen=True, slots=True)
class TableSink(Maker):
    """A partition an epoch, overwritten as a whole."""

    name: str

    @property
    def place(self) -> str:
        return f"table {self.name}"

    @property
    def guarantee(self) -> str:
        return (
            "exactly once, as far as the table's overwrite of a partition is atomic: in Spark's "
            "own file tables a reader may meet a part of the newest epoch while it is delivered, "
            "and a driver that was stopped in mid-delivery and wakes up when another one has taken "
            "over may leave rows of that epoch twice, or none. "
            "After godwit.restore, drop the partitions of later epochs first; another query that "
            "writes to the same table overwrites them"
        )

    def check(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        self.refuse(spark, schema, checkpoint)
        if not spark.catalog.tableExists(self.name):
            ddl = with_epoch(schema).toDDL()
            spark.sql(f"CREATE TABLE {self.name} ({ddl}) PARTITIONED BY ({EPOCH})")

    def refuse(self, spark: SparkSession, schema: StructType, checkpoint: str) -> None:
        check_no_epoch(schema)
        if not spark.catalog.tableExists(self.name):
            return
        columns = spark.catalog.listColumns(self.name)
        if [column.name for column in columns if column.isPartition] != [EPOCH]:
            raise ConfigError(
                f"table {self.name} is not partitioned by a column '{EPOCH}' alone, so an epoch "
                "cannot be overwritten; name another table, it is made if missing"
            )
        there = {column.name for column in columns} - {EPOCH}
        if there != set(schema.names):
            raise ConfigError(
                f"table {self.name} has the columns {', '.join(sorted(there))}, the query's output "
                f"{', '.join(sorted(schema.names))}; they must be the same"
            )
        self._check_types(spark.createDataFrame([], schema))

    def identity(self, spark: SparkSession) -> Hashable:
        found = spark.catalog.getTable(self.name)
        names = found.catalog, *(found.namespace or ()), found.name
        if spark.conf.get("spark.sql.caseSensitive") == "true":
            return names
        return tuple(name and name.lower() for name in names)

    def _check_types(self, rows: DataFrame) -> None:
        """Let Spark plan what each epoch does; that fails if a column does not fit."""
        spark = rows.sparkSession
        planned = spark.sql(f"EXPLAIN {self._overwrite(0)}", rows=rows).collect()
        if not planned[0].plan.startswith("Error occurred during query planning"):
            return
        there = spark.table(self.name).schema
        differ = [
            f"'{column.name}' with type {there[column.name].dataType.simpleString()}, the output "
            f"with type {column.dataType.simpleString()}"
            for column in rows.schema
            if there[column.name].dataType != column.dataType
        ]
        if not differ:
            raise ConfigError(f"table {self.name} cannot be overwritten: {planned[1].plan}")
        raise ConfigError(
            f"table {self.name} has the column {'; '.join(differ)}; cast it, or name another table"
        )

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        rows.sparkSession.sql(self._overwrite(epoch), rows=rows)

    def _overwrite(self, epoch: int) -> str:
        return (
            f"INSERT OVERWRITE TABLE {self.name} PARTITION ({EPOCH} = {epoch}) BY NAME "
            "SELECT * FROM {rows}"
        )
