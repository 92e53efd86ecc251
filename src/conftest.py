"""Examples in docstrings that name Spark get a session, and run among the tests that need one.

They have a directory `home` with some words in `input`. There is `query`, which counts them into
`checkpoint` and `output`, with its `reports`; and `old`, the checkpoint of a query of Spark's own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from tests.conftest import spark

__all__ = ["spark"]

_SPARK = re.compile(r"\bspark\.read|\((spark, )?home|\bquery\.|\breports\[")
_RUNNING = re.compile(r'"(checkpoint|output)"|\bquery\.|\breports\[')
WORDS = ["to", "be", "to"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.DoctestItem) and _SPARK.search(_source(item)):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(autouse=True)
def names(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any], tmp_path: Path
) -> Iterator[None]:
    """What the examples of a docstring may use without saying where it comes from."""
    if request.node.get_closest_marker("spark") is None:
        yield
        return
    session, source = request.getfixturevalue("spark"), _source(request.node)
    (tmp_path / "input").mkdir()
    lines = "".join(json.dumps({"word": word}) + "\n" for word in WORDS)
    (tmp_path / "input" / "words.json").write_text(lines)
    doctest_namespace |= {"spark": session, "home": tmp_path}
    if '"old"' in source:
        _run_spark(session, tmp_path)
    if "query = " in source or not _RUNNING.search(source):
        yield
        return
    query = _start(session, tmp_path, doctest_namespace)
    yield
    query.stop()


def _source(item: pytest.Item) -> str:
    assert isinstance(item, pytest.DoctestItem)
    return "".join(re.sub(r"#.*", "", example.source) for example in item.dtest.examples)


def _start(spark: SparkSession, home: Path, names: dict[str, Any]) -> gw.Query:
    words = spark.readStream.schema("word string").json(f"{home}/input")
    counts = gw.stream(words).aggregate("counts", key="word", n=gw.count())
    reports: list[gw.EpochReport] = []
    query = counts.to(gw.files(home / "output")).start(
        home / "checkpoint", workers=2, options=gw.Options(bins=16), listener=reports.append
    )
    query.process_all_available()
    names |= {"query": query, "reports": reports}
    return query


def _run_spark(spark: SparkSession, home: Path) -> None:
    words = spark.readStream.schema("word string").json(f"{home}/input")
    writer = words.groupBy("word").count().writeStream.outputMode("update")
    writer = writer.foreachBatch(
        lambda rows, epoch: rows.write.format("noop").mode("overwrite").save()
    )
    writer = writer.option("checkpointLocation", f"{home}/old").trigger(availableNow=True)
    writer.start().awaitTermination()
