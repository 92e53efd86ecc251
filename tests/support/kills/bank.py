"""The query that is killed, and its input.

Payments are summed up by account; the changed balances go on to a state machine that keeps a
statement for each branch, in a state of all three forms. One input file is one epoch.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from tests.support.kills.functions import statement

ACCOUNTS = [f"{branch}{number}" for branch in "abcdefg" for number in range(5)]
PAYMENTS_A_FILE = 40

Payment = tuple[str, int]
Function = Callable[[Any, Any, Any], Any]


def job(spark: SparkSession, home: Path, function: Function = statement) -> gw.Job:
    payments = (
        spark.readStream.option("maxFilesPerTrigger", 1)
        .schema("account string, amount long")
        .csv(str(home / "input"))
    )
    return (
        gw.stream(payments)
        .aggregate("balances", key="account", n=gw.count(), balance=gw.sum("amount"))
        .transform(lambda rows: rows.selectExpr("left(account, 1) branch", "account", "balance"))
        .state_machine(
            "statements",
            key="branch",
            function=function,
            state={
                "profile": gw.Value("seen long"),
                "history": gw.List("account string, balance long"),
                "best": gw.Map("account string", "balance long"),
            },
            output="branch string, account string, balance long, seen long, length long",
        )
        .to(gw.files(home / "output"))
    )


def write_input(home: Path, files: range) -> None:
    """Write numbered files of payments; Spark takes the oldest first."""
    directory = home / "input"
    directory.mkdir(exist_ok=True)
    for number in files:
        draft = directory / f".{number:03}"
        draft.write_text("".join(f"{account},{amount}\n" for account, amount in payments(number)))
        os.utime(draft, (number, number))
        draft.rename(directory / f"{number:03}.csv")


def payments(number: int) -> list[Payment]:
    rng = random.Random(number)
    return [(rng.choice(ACCOUNTS), rng.randint(-100, 100)) for _ in range(PAYMENTS_A_FILE)]
