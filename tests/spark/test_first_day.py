"""What a new user meets: the README's program and Ctrl-C, a wrong Python, a forgotten sink."""

import os
import re
import signal
import subprocess
import sys
import threading
import venv
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import godwit as gw
from godwit.spark.start_check import check_python
from tests.support.feed import Feed

pytestmark = pytest.mark.spark

EPOCHS = 4
SPARKS_OWN = re.compile(  # what Spark says whoever starts it, and stops a query of any kind
    r"WARNING: Using incubator modules|Using Spark's default log4j|Setting default log level|"
    r"To adjust logging level|.* WARN (NativeCodeLoader|Utils): |"
    r".* WARN DAGScheduler: Failed to cancel job group .*\. Cannot find active jobs for it\."
)

START = """
from pyspark.sql import SparkSession
import godwit as gw

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
counts = gw.stream(spark.readStream.text("input")).aggregate("counts", key="value", n=gw.count())
counts.to(gw.files("output")).start("checkpoint")
"""


def run(home: Path, program: str, **environment: str) -> subprocess.Popen[bytes]:
    """A program with an input, in a directory and, as in a terminal, a process group of its own."""
    (home / "input").mkdir()
    (home / "input" / "0.txt").write_text("to be or not to be\n")
    (home / "program.py").write_text(program)
    with (home / "said").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=home,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def told(home: Path) -> list[str]:
    """What a program said, without what Spark says of itself, and its progress bars."""
    lines = [line for line in re.split(r"[\r\n]+", (home / "said").read_text()) if line.strip()]
    return [x for x in lines if not SPARKS_OWN.match(x) and not x.startswith("[Stage")]


def open_at_the_end(process: subprocess.Popen[bytes], fifo: Path) -> None:
    """So that nobody waits for a program that has failed."""
    process.wait()
    with suppress(OSError):  # nobody does
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


def test_the_first_program_says_nothing_and_ends_at_an_interrupt(
    tmp_path: Path, pytestconfig: pytest.Config, quick: dict[str, str]
) -> None:
    readme = (pytestconfig.rootpath / "README.md").read_text()
    program = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    # After some epochs, of which a tick started some, the program tells that it may be interrupted.
    program = program.replace(
        "query.await_termination()",
        f"for number in range(1, {EPOCHS}):\n"
        "    query.process_all_available()\n"
        "    open(f'input/{number}.txt', 'w').write('to be or not to be')\n"
        "query.process_all_available()\n"
        "import signal, threading, time\n"
        "def tell():  # once the program waits: then it takes the signal itself\n"
        "    while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:\n"
        "        time.sleep(0.01)\n"
        "    open('ready', 'w').close()\n"
        "threading.Thread(target=tell, daemon=True).start()\n"
        "query.await_termination()",
    )
    os.mkfifo(tmp_path / "ready")
    process = run(tmp_path, program, PYSPARK_PYTHON=sys.executable, **quick)
    threading.Thread(target=open_at_the_end, args=[process, tmp_path / "ready"]).start()
    (tmp_path / "ready").read_bytes()  # waits until somebody opens it to write
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == -signal.SIGINT  # a shell says 130
    assert told(tmp_path) == []
    assert len(list((tmp_path / "output").glob("epoch=*"))) >= EPOCHS


def test_a_python_that_is_not_there(tmp_path: Path, quick: dict[str, str]) -> None:
    process = run(tmp_path, START, PYSPARK_PYTHON="/no/such/python", **quick)
    assert process.wait() == 1
    *trace, message = told(tmp_path)
    assert message == (
        "godwit.errors.ConfigError: executors cannot run Godwit with the Python '/no/such/python': "
        "no such file or directory. Set PYSPARK_PYTHON to the Python that runs this program"
    )
    assert all(line.startswith(("Traceback", "  ")) for line in trace)
    assert not (tmp_path / "checkpoint").exists()


def test_a_python_without_godwit(tmp_path: Path, quick: dict[str, str]) -> None:
    venv.create(tmp_path / "bare")
    python = str(tmp_path / "bare" / "bin" / "python")
    process = run(tmp_path, START, PYSPARK_PYTHON=python, **quick)
    assert process.wait() == 1
    *trace, message = told(tmp_path)
    assert re.fullmatch(
        rf"godwit\.errors\.ConfigError: executors cannot run Godwit with the Python '{python}': "
        r"it has no module '\w+'\. Install Godwit there as you did here, or set .*",
        message,
    )
    assert all(line.startswith(("Traceback", "  ")) for line in trace)


FAILING = START.replace(
    """.aggregate("counts", key="value", n=gw.count())""",
    """.state_machine(
    "steps", key="value", function=lambda key, value, state: 1 / 0, state="n int", output="n int"
)""",
).replace(""".start("checkpoint")""", """.start("checkpoint").await_termination()""")


def test_a_function_that_raises_is_told_without_sparks_traces(
    tmp_path: Path, quick: dict[str, str]
) -> None:
    process = run(tmp_path, FAILING, PYSPARK_PYTHON=sys.executable, **quick)
    assert process.wait() == 1
    (logged,) = (line for line in told(tmp_path) if re.search(" (INFO|WARN|ERROR) ", line))
    assert "ERROR godwit: failed in epoch 0: OperatorError: operator 'steps' failed at" in logged
    text = (tmp_path / "said").read_text()
    assert "godwit.errors.OperatorError" in text
    assert "\tat " not in text  # no line of a trace of Java's


def test_the_python_is_tried_once_an_application(spark: SparkSession) -> None:
    tracker = spark.sparkContext.statusTracker()
    check_python(spark)
    before = len(tracker.getJobIdsForGroup(None))
    check_python(spark)
    assert len(tracker.getJobIdsForGroup(None)) == before


def test_an_executor_without_the_package_of_a_sink(spark: SparkSession) -> None:
    with pytest.raises(gw.ConfigError, match=r"it has no module 'no_lake'\. Install Godwit there"):
        check_python(spark, "no_lake")


def test_a_forgotten_sink(spark: SparkSession, tmp_path: Path, feed: Feed) -> None:
    counts = gw.stream(feed.stream(spark)).aggregate("counts", key="word", n=gw.count())
    with pytest.raises(gw.ConfigError, match=r"sink first: \.to\(gw\.files\('output'\)\)\.start"):
        counts.start(tmp_path / "checkpoint", workers=2)


def test_a_function_that_cannot_be_sent_starts_nothing(
    spark: SparkSession, tmp_path: Path, feed: Feed
) -> None:
    lock = threading.Lock()

    def step(key: object, value: object, state: object) -> list[object]:
        with lock:
            return []

    job = (
        gw.stream(feed.stream(spark))
        .state_machine("steps", key="word", function=step, state="n bigint", output="n bigint")
        .to(gw.files(tmp_path / "output"))
    )
    with pytest.raises(gw.ConfigError, match=r"operator 'steps': its function `step` .* `lock`"):
        job.start(tmp_path / "checkpoint", workers=2)
    assert not (tmp_path / "checkpoint").exists()


def test_on_one_machine_the_executor_is_the_driver(
    spark: SparkSession, tmp_path: Path, feed: Feed
) -> None:
    reports: list[gw.EpochReport] = []
    feed.add([{"word": "a"}])
    query = (
        gw.stream(feed.stream(spark))
        .aggregate("counts", key="word", n=gw.count())
        .to(gw.foreach_batch(lambda rows, epoch: None))
        .start(tmp_path / "checkpoint", workers=2, listener=reports.append)
    )
    query.process_all_available()
    query.stop()
    assert reports[0].executors == {0: "driver", 1: "driver"}
