"""A Spark application as a user would submit it: `python -m tests.support.kills.application`.

`Application` starts it; its arguments, those of `main`, come as a line of JSON.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import godwit as gw
from tests.support.kills import bank
from tests.support.kills import timed as timed_query
from tests.support.kills.functions import Overtaken, statement
from tests.support.kills.truth import TABLES, tabulate

RETENTION = 3  # epochs; few, so that files are deleted while processes die
# Short runs over small data: to compile thoroughly, collect in parallel, or generate Java for each
# query costs more than it saves.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
QUICK_SQL: dict[str, Any] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(
    home: str,
    java: str,
    workers: int | None = None,
    *,
    timed: bool = False,
    endless: bool = False,
    overtaken_at: int | None = None,
    hosts: Sequence[str] = (),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run the query over all files, then leave its state as `godwit.read_state` tells it.

    It is that of `bank`, or a `timed` one, which leaves its checkpoint and has few bins.
    An endless one waits for more files instead. `hosts` are addresses of this machine: with them it
    runs on a cluster of one executor each, instead of in one process.
    """
    here = Path(home)
    master = cluster(here, hosts) if hosts else "local[2,4]"
    spark = session(master, java, conf)
    if timed:
        job = timed_query.job(spark, here)
        job.start(
            here / "checkpoint",
            workers=workers,
            options=gw.Options(bins=8),
            trigger=gw.available_now(),
        ).await_termination()
        return
    function = statement if overtaken_at is None else Overtaken(here, overtaken_at)
    query = bank.job(spark, here, function).start(
        here / "checkpoint",
        workers=workers,
        options=gw.Options(retention=RETENTION),
        trigger=None if endless else gw.available_now(),
    )
    if endless:
        query.process_all_available()
        (here / f"idle-{os.getpid()}").touch()
    query.await_termination()
    state = {}
    for table, (operator, _) in TABLES.items():
        rows = gw.read_state(spark, here / "checkpoint", operator, table=table).collect()
        state[table] = tabulate(table, [row.asDict() for row in rows])
    (here / "state.json").write_text(json.dumps(state))


def session(master: str, java: str, conf: Mapping[str, str]) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.executor.extraJavaOptions", java)
        .config("spark.python.daemon.module", "godwit.spark.daemon")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.log.level", "OFF")
    )
    for name, value in (QUICK_SQL | dict(conf)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def cluster(home: Path, hosts: Sequence[str]) -> str:
    """Start Spark's own cluster manager, and a worker with one core at each of `hosts`.

    Spark's `local-cluster` would not do: it is one host, where nothing is run speculatively.
    """
    with socket.create_server((hosts[0], 0)) as free:
        address = (hosts[0], free.getsockname()[1])
    master = f"spark://{address[0]}:{address[1]}"
    deploy("master.Master", "--host", address[0], "--port", str(address[1]))
    while True:
        try:
            socket.create_connection(address).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    for host in hosts:
        work = home / f"executor-{host}"
        deploy("worker.Worker", "--host", host, "-c", "1", "-m", "1g", "-d", str(work), master)
    return master


def deploy(program: str, *arguments: str) -> None:
    spark = Path(pyspark.__file__).parent
    environment = {
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(spark),
    }
    command = [f"{spark}/bin/spark-class", f"org.apache.spark.deploy.{program}", *arguments]
    subprocess.Popen([*command, "--webui-port", "0"], env=os.environ | environment)


if __name__ == "__main__":
    main(**json.loads(sys.stdin.readline()))
