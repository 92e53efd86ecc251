"""What a start says of the executors' Python, and what it keeps quiet."""

import warnings
from unittest.mock import MagicMock

import pytest
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from godwit.spark.start_check import _silenced, explain, hush_pandas

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
