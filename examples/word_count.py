"""A word count that is killed, restarted and rescaled while it runs, and still counts exactly once.

    python examples/word_count.py

It writes a few text files, counts their words in a process that is ended with SIGKILL in the middle
of an epoch, goes on in a second process that also moves its state from 2 to 4 workers without
stopping, and compares the result with a count in plain Python.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import godwit as gw

FILES = 12
WORDS_A_FILE = 50_000
VOCABULARY = 20_000
MIGRATE_AT = 7  # the epoch after which bins change worker


def main() -> None:
    if len(sys.argv) > 1:  # a process of the query, started below
        count_words(Path(sys.argv[1]), migrate_at=int(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="godwit-") as directory:
        home = Path(directory)
        print(f"writing {FILES} files of {WORDS_A_FILE:,} words")
        write_input(home / "input")
        print("counting them; the process dies in the middle of epoch 4")
        run(home, kill_in_epoch=4)
        print("counting on in a new process")
        run(home)


def run(home: Path, kill_in_epoch: int | None = None) -> None:
    """Run the query in a process of its own, and perhaps end it and its JVM by SIGKILL."""
    command = [sys.executable, __file__, str(home), str(MIGRATE_AT)]
    log = home / "spark.log"
    with (
        log.open("ab") as errors,
        subprocess.Popen(command, start_new_session=True, stderr=errors) as process,
    ):
        if kill_in_epoch is not None:
            begun = home / "checkpoint" / "godwit" / "intents" / f"{kill_in_epoch}.json"
            while not begun.exists() and process.poll() is None:
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
            print(f"  killed: epoch {kill_in_epoch} had begun and was not published", flush=True)
        elif process.wait():
            sys.exit(f"the query failed; the end of its log:\n{log.read_text()[-3000:]}")


def write_input(directory: Path) -> None:
    directory.mkdir()
    rng = random.Random(20)
    vocabulary = [f"word{number}" for number in range(VOCABULARY)]
    for number in range(FILES):
        words = rng.choices(vocabulary, k=WORDS_A_FILE)
        (directory / f"{number:02}.txt").write_text(" ".join(words))


def count_words(home: Path, migrate_at: int) -> None:
    """Count the words of all files, one file an epoch."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .getOrCreate()
    )
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(home / "input"))
    query = (
        gw.stream(lines.selectExpr("explode(split(value, ' ')) AS word"))
        .aggregate("counts", key="word", n=gw.count())
        .to(gw.files(home / "output"))
        .start(home / "checkpoint", workers=2, trigger=gw.available_now())
    )
    epoch = 0 if query.epoch is None else query.epoch + 1
    while query.await_epoch(epoch):
        print(f"  epoch {epoch:2}: {query.routing().workers} workers", flush=True)
        if epoch == migrate_at:
            print("  moving the state to 4 workers, while the query runs", flush=True)
            query.migrate(4)
        epoch += 1
    query.await_termination()
    check(spark, home)


def check(spark: SparkSession, home: Path) -> None:
    """Compare the state, and every row of the output, with a count in plain Python."""
    expected: Counter[str] = Counter()
    rows: Counter[tuple[int, str, int]] = Counter()
    for epoch, path in enumerate(sorted((home / "input").iterdir())):
        words = path.read_text().split()
        expected.update(words)
        rows.update((epoch, word, expected[word]) for word in set(words))
    state = gw.read_state(spark, home / "checkpoint", "counts")
    counted = {row.word: row.n for row in state.collect()}
    output = spark.read.parquet(str(home / "output")).select("epoch", "word", "n")
    delivered = Counter(map(tuple, output.collect()))
    print(f"\n{len(counted):,} words, {sum(counted.values()):,} occurrences; the most frequent:")
    state.orderBy("n", ascending=False).limit(3).show()
    print(f"state is exactly right:  {counted == expected}")
    print(f"output is exactly right: {delivered == rows} ({delivered.total():,} rows)")
    spark.stop()
    if counted != expected or delivered != rows:
        sys.exit(1)


if __name__ == "__main__":
    main()
