"""What a start says of the executors' Python, and what it keeps quiet."""

import warnings

import pytest
from pyspark.sql.pandas.utils import require_minimum_pandas_version

from godwit.spark.start_check import explain, hush_pandas

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
            "it has no module 'godwit'. Install Godwit for it (pip install godwit), or set "
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
