"""The program on the README's first screen does what it says."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.counting import state


@pytest.mark.spark
def test_the_first_program(
    spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    text = (pytestconfig.rootpath / "README.md").read_text()
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "lines.txt").write_text("a b a\nc a")
    program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    program, waiting, rest = program.partition("query.await_termination()")
    assert (waiting, rest) == ("query.await_termination()", "\n")
    names: dict[str, Any] = {}
    exec(re.sub(r'"(input|output|checkpoint)"', rf'"{tmp_path}/\1"', program), names)
    query = names["query"]
    try:
        query.process_all_available()
        assert query.routing().workers == 4
    finally:
        query.stop()
    assert state(spark, tmp_path / "checkpoint") == Counter("abaca")
