"""The jobs of an epoch, in the order of the graph; independent ones run at the same time."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from godwit.model.graph import Graph
from godwit.model.receipt import Receipt
from godwit.spark.operator_job import OperatorJob

Receipts = Mapping[str, Sequence[Receipt]]  # by operator


def run_jobs(
    spark: SparkSession, graph: Graph, plan: Callable[[str, Receipts], OperatorJob]
) -> dict[str, list[Receipt]]:
    """The receipts of all operators; `plan` gets those of the operators before one.

    Jobs are planned in this thread, one by one. Their threads inherit what Spark knows of this one,
    so whoever cancels its jobs cancels theirs. If one fails, the others come to their end.
    """
    receipts: dict[str, list[Receipt]] = {}
    running: dict[Future[list[Receipt]], str] = {}
    waiting = list(graph.inputs)
    with ThreadPoolExecutor(len(waiting), "godwit-operator") as pool:
        while waiting or running:
            ready = [name for name in waiting if receipts.keys() >= set(graph.before(name))]
            waiting = [name for name in waiting if name not in ready]
            for place, name in enumerate(ready):
                job = plan(name, receipts)
                if not running and place == len(ready) - 1:  # it has nobody beside it
                    receipts[name] = job.run()
                else:
                    running[pool.submit(inheritable_thread_target(spark)(job.run))] = name
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            receipts |= {running.pop(future): future.result() for future in done}
    return {name: receipts[name] for name in graph.inputs}
