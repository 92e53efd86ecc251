"""Outputs in a table of Spark's catalog."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from godwit.errors import ConfigError
from godwit.log.history import History
from godwit.spark.sinks.arrow_sink import Delivered
from godwit.spark.sinks.sink import EPOCH, Maker, Sink, TaskWriter, check_no_epoch, with_epoch
from godwit.storage.directories import local_path
from godwit.storage.location import Location

NUMBER: Final = "godwit.epoch"  # properties of a table
COMMIT: Final = "godwit.commit"
CHECKPOINT: Final = "godwit.checkpoint"


def table(name: str) -> Sink:
    """A Spark table partitioned by a column `epoch`, made if missing: an epoch is one partition.

    >>> table("counts").guarantee.partition(",")[0]
    'exactly once'
    """
    return TableSink(name)


@dataclass
class TableSink(Maker, TaskWriter):
    """A partition an epoch, overwritten as a whole; a property of the table names the commit that
    is the newest, or is being delivered."""

    name: str
    _checkpoint: str = field(default="", init=False, repr=False)

    @property
    def place(self) -> str:
        return f"table {self.name}"

    @property
    def guarantee(self) -> str:
        return (
            "exactly once, as far as the table's overwrite of a partition is atomic: in Spark's "
            "own file tables a reader may meet a part of the newest epoch while it is delivered, "
            "and a driver that was stopped in mid-delivery and wakes up when another one has taken "
            "over may leave rows of that epoch twice, or none; another query's output is refused"
        )

    def check(self, spark: SparkSession, schema: StructType, checkpoint: Location) -> None:
        self.refuse(spark, schema, checkpoint)
        if not spark.catalog.tableExists(self.name):
            ddl = with_epoch(schema).toDDL()
            spark.sql(f"CREATE TABLE {self.name} ({ddl}) PARTITIONED BY ({EPOCH})")
        self._checkpoint = str(checkpoint)
        try:
            self._tell(spark, {CHECKPOINT: self._checkpoint})
        except PySparkException as error:
            raise ConfigError(
                f"{self} keeps no properties, by which an epoch is known again "
                f"({str(error).splitlines()[0]}); name a table of another catalog"
            ) from error

    def refuse(self, spark: SparkSession, schema: StructType, checkpoint: Location) -> None:
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
        found = self._delivered(spark, History(checkpoint).query or "")
        if found is not None:
            found.check_start(checkpoint, str(self))

    def identity(self, spark: SparkSession) -> Hashable:
        found = spark.catalog.getTable(self.name)
        names = found.catalog, *(found.namespace or ()), found.name
        if spark.conf.get("spark.sql.caseSensitive") == "true":
            return names
        return tuple(name and name.lower() for name in names)

    def directory(self, spark: SparkSession) -> Path | None:
        """That of the table; if it is missing, of the database that it is to be in."""
        if spark.catalog.tableExists(self.name):
            told = spark.sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect()
            places = [row.data_type for row in told if row.col_name == "Location"]
        else:
            database = self.name.rpartition(".")[0] or spark.catalog.currentDatabase()
            places = [spark.catalog.getDatabase(database).locationUri]
        return local_path(places[-1]) if places else None  # columns come before

    def deliver(self, epoch: int, rows: DataFrame, commit: str, count: int) -> None:
        spark = rows.sparkSession
        found = self._delivered(spark, commit.partition("/")[0])
        if found is None or not found.has(epoch, commit, str(self)):
            told = {NUMBER: str(epoch), COMMIT: commit, CHECKPOINT: self._checkpoint}
            self._tell(spark, told)
        spark.sql(self._overwrite(epoch), rows=rows)  # a delivery that is told may be half done

    def __str__(self) -> str:
        return f"the table {self.name}"

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

    def _delivered(self, spark: SparkSession, query: str) -> Delivered | None:
        """What the table has of a query; an error if it is another query's."""
        told = spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        properties = {row.key: row.value for row in told}
        if (commit := properties.get(COMMIT)) is None:
            return None
        if commit.partition("/")[0] != query:
            raise ConfigError(
                f"{self} holds the output of another query, in checkpoint "
                f"{properties.get(CHECKPOINT)}. Name another table, or, to let this query go on in "
                f"it: ALTER TABLE {self.name} UNSET TBLPROPERTIES ('{COMMIT}'). Nothing was changed"
            )
        return Delivered(int(properties[NUMBER]), commit)

    def _tell(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        told = ", ".join(f"'{name}' = {_literal(text)}" for name, text in properties.items())
        spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({told})")

    def _overwrite(self, epoch: int) -> str:
        return (
            f"INSERT OVERWRITE TABLE {self.name} PARTITION ({EPOCH} = {epoch}) BY NAME "
            "SELECT * FROM {rows}"
        )


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))
