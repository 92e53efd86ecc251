"""Spark's own cluster manager on hosts: a master, and workers that start executors."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lab.hosts.host import SPARK, Host
from lab.hosts.service import Service

_PORT: Final = 7077
# Processes that wait most of the time: to compile thoroughly costs them more than it saves.
_DAEMON: Final = {
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "SPARK_DAEMON_MEMORY": "256m",
}


class Standalone:
    """A master on one host, and so many workers on others, each with so many cores and so much
    memory for an executor, in Spark's notation. `lost_after` are the seconds after which the master
    gives up a worker that it does not hear of.
    """

    def __init__(
        self, master: Host, workers: int, cores: int, memory: str, lost_after: int
    ) -> None:
        self.url = f"spark://{master.name}:{_PORT}"
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._lost_after = f"-Dspark.worker.timeout={lost_after}"
        self._master = master
        self.start_master()

    def start_master(self) -> None:
        """Start the master, also on a host that was booted again; workers come back to it."""
        master = self._deploy(self._master, "master.Master", "--port", _PORT)
        master.await_said("I have been elected leader")

    def start_workers(self, hosts: Iterable[Host]) -> None:
        """Start a worker on each, also if it was booted again."""
        offer = ("--cores", self._cores, "--memory", self._memory, "--work-dir", "/tmp/work")
        workers = [self._deploy(host, "worker.Worker", *offer, self.url) for host in hosts]
        for worker in workers:
            worker.await_said("Successfully registered with master")

    def settings(self) -> Mapping[str, str]:
        """Of an application, which waits at its start for all executors."""
        return {
            "spark.master": self.url,
            "spark.executor.memory": self._memory,
            "spark.cores.max": str(self._cores * self._workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }

    def _deploy(self, host: Host, program: str, *arguments: Any) -> Service:
        daemon = f"org.apache.spark.deploy.{program}"
        own = ("--host", host.name, "--webui-port", 0)
        name = "spark-" + program.partition(".")[0]
        command = map(str, [SPARK / "bin/spark-class", daemon, *own, *arguments])
        variables = {**_DAEMON, "SPARK_MASTER_OPTS": self._lost_after}
        return Service(host, name, [*command], variables)
