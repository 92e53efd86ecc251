"""A query on hosts: `python -m tests.support.hosts.query HOME INPUT` counts keys in files.

It prints a line for each epoch, and answers commands on its input, a line of JSON each: "all" when
all files there are counted, ["migrate", N] when the state has moved to N workers, and "stop" with
what it has counted and what an audit has found.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import godwit as gw
from godwit.inspect.audit import verify
from tests.support.cluster.application import CONF
from tests.support.cluster.failing import MORE
from tests.support.kills.application import QUICK_JAVA, QUICK_SQL

SCHEMA = "k int"
SETTINGS: dict[str, Any] = {
    "spark.cores.max": 2,  # half of the cluster: a lost driver's executors keep theirs for a while
    "spark.executor.cores": 1,
    "spark.executor.memory": "700m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.shuffle.partitions": 2,
}


def main(home: str, directory: str) -> None:
    settings = {**CONF, **MORE, **QUICK_SQL, **SETTINGS}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    query = (
        gw.stream(reader.parquet(directory))
        .aggregate("counts", key="k", n=gw.count())
        .to(gw.files(f"{home}/output"))
        .start(
            f"{home}/checkpoint",
            workers=2,
            options=gw.Options(bins=16, retention=1000),
            listener=lambda report: say(epoch=report.epoch),
        )
    )
    say(started=True)
    while line := sys.stdin.readline():
        match json.loads(line):
            case "all":
                query.process_all_available()
                say(answer=query.epoch)
            case ["migrate", workers]:
                say(answer=query.migrate(workers).wait())
            case "stop":
                query.stop()
                state = gw.read_state(spark, f"{home}/checkpoint", "counts").collect()
                findings = verify(f"{home}/checkpoint").findings
                say(answer=[{row.k: row.n for row in state}, [str(one) for one in findings]])
                return


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
