"""What a start says of the executors' Python, and what it keeps quiet."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.utils import require_minimum_pandas_version

import godwit as gw
from godwit.errors import ConfigError
from godwit.model.schema import parse
from godwit.spark import start_check
from godwit.spark.start_check import _silenced, check_start, explain, hush_pandas
from godwit.spark.types import to_spark

NEXT = "Set PYSPARK_PYTHON to the Python that runs this program"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            'java.io.IOException: Cannot run program "python9": error=2, No such file or directory',
            f"no such file or directory. {NEXT}",
        ),
        (
            'Cannot run program "/etc/passwd": Exec failed, error=13, Permission denied\n\tat x',
            f"permission denied. {NEXT}",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            f"it is Python 3.10, but this program runs with Python 3.11. {NEXT}",
        ),
        (
            "Traceback\n  File\nModuleNotFoundError: No module named 'godwit'\n\tat java",
            "it has no module 'godwit'. Install Godwit there as you did here, or set "
            "PYSPARK_PYTHON to the Python that runs this program",
        ),
        ("Job 0 cancelled because SparkContext was shut down", None),
    ],
)
def test_what_is_wrong_with_a_python(error: str, why: str | None) -> None:
    assert explain(error) == why


def test_spark_does_not_warn_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pandas.__version__", "3.0.0")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        hush_pandas()
        require_minimum_pandas_version()
    assert not warned


def test_a_spark_that_does_not_log_by_log4j_is_left_alone() -> None:
    spark = MagicMock()
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    log4j.LogManager.getContext.side_effect = TypeError("'JavaPackage' object is not callable")
    with _silenced(spark):
        log4j.LogManager.getContext.assert_called_once()
    log4j.core.config.Configurator.setLevel.assert_not_called()


def test_a_spark_that_logs_by_log4j_gets_its_levels_back() -> None:
    spark = MagicMock()
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    set_level = log4j.core.config.Configurator.setLevel
    configuration = log4j.LogManager.getContext.return_value.getConfiguration.return_value
    with _silenced(spark):
        assert {call.args[1] for call in set_level.call_args_list} == {log4j.Level.OFF}
    silenced = [call.args[0] for call in set_level.call_args_list]
    assert [call.args[0] for call in configuration.removeLogger.call_args_list] == silenced


@pytest.mark.parametrize("sink", [gw.delta("table"), gw.iceberg("ns.table")])
def test_a_package_that_a_sink_lacks_is_told_before_executors_are_asked(
    sink: gw.Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In local mode they lack it, too, and could not tell the command that installs it."""

    def check_python(*given: object) -> None:
        raise ConfigError("executors cannot run Godwit")

    monkeypatch.setattr(start_check, "check_python", check_python)
    schema = to_spark(parse("k string"))
    flow: Any = SimpleNamespace(outlets=[(SimpleNamespace(schema=schema), sink)], operators={})
    spark = MagicMock()
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setitem(sys.modules, "pyiceberg.io.pyarrow", None)
    with pytest.raises(ConfigError, match="pip install"):
        check_start(spark, flow, str(tmp_path))


def test_a_table_that_spark_cannot_overwrite_for_another_reason_than_types() -> None:
    schema = to_spark(parse("k string, n bigint"))
    spark = MagicMock()
    columns = [SimpleNamespace(name=name, isPartition=name == "epoch") for name in ("k", "epoch")]
    spark.catalog.listColumns.return_value = [*columns, SimpleNamespace(name="n", isPartition=0)]
    spark.table.return_value.schema = schema
    spark.createDataFrame.return_value = SimpleNamespace(sparkSession=spark, schema=schema)
    told = "Error occurred during query planning: ", "[NOT_WRITABLE] The view is read.", "more"
    spark.sql.return_value.collect.return_value = [Row(plan=line) for line in told]
    with pytest.raises(ConfigError, match=r"table t cannot be overwritten: \[NOT_WRITABLE\] The v"):
        gw.table("t").check(spark, schema, "checkpoint")
