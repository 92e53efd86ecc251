"""The command line on a query that runs on Spark; once in a process of its own."""

import json
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.cli import main
from tests.support.counting import counting, words
from tests.support.feed import Feed

pytestmark = pytest.mark.spark


def command(*arguments: str) -> tuple[int, Any]:
    """A command's exit code, and the lines of JSON that it prints."""
    with redirect_stdout(StringIO()) as printed:
        code = main([*arguments, "--json"])
    return code, _objects(printed.getvalue())


def command_in_a_process(*arguments: str) -> tuple[int, Any]:
    godwit = [sys.executable, "-c", "import sys; from godwit.cli import main; sys.exit(main())"]
    ended = subprocess.run([*godwit, *arguments, "--json"], capture_output=True, text=True)
    assert ended.stderr == ""
    return ended.returncode, _objects(ended.stdout)


def _objects(text: str) -> Any:
    objects = text.replace("}\n{", "},{")
    return json.loads(f"[{objects}]")


def test_plan_apply_watch_abort_history(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    feed.add(words("a b c d"))
    query = counting(spark, feed, gw.memory("commands")).start(
        checkpoint,
        workers=2,
        options=gw.Options(bins=4096),
        trigger="1 second",  # few epochs, while processes of commands start
    )
    try:
        query.process_all_available()
        code, (answer, *steps) = command_in_a_process(
            "apply", checkpoint, "--workers", "4", "--strategy", "batched:700", "--watch"
        )
        assert (code, answer["answer"]) == (0, "accepted")
        assert steps[-1]["migration"]["outcome"] == "done"
        assert query.routing() == gw.Routing.even(4096, 2).spread(4)

        code, (answer,) = command("apply", checkpoint, "--workers", "1", "--strategy", "fluid")
        assert code == 0
        code, (status,) = command("status", checkpoint)
        operator = status["operators"]["counts"]
        assert (code, operator["migration"]["id"]) == (0, answer["id"])
        assert (operator["row_versions"], len(operator["workers"])) == (4, 4)
        assert command("abort", checkpoint, "--rollback")[0] == 0
        assert command("watch", checkpoint)[0] == 1
        assert query.routing() == gw.Routing.even(4096, 2).spread(4)

        code, (told,) = command("history", checkpoint)
        assert [one["outcome"] for one in told["migrations"]] == ["done", "rolled back"]
    finally:
        query.stop()
