"""Hosts with Spark and a store on them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from lab.hosts.hosts import Hosts
from lab.hosts.s3_server import S3Server
from lab.hosts.standalone import Standalone

DRIVER: Final = "driver"
MASTER: Final = "master"
STORE: Final = "store"


class Cluster:
    """The hosts `driver`, `master`, `worker-1` and so on, `store` if one is wanted, and others by
    their names. A program on any of them finds Spark's cluster and the store by its environment.

    `proxied` programs reach the store through its proxy, and meet the faults that it is told.
    """

    def __init__(
        self,
        workers: int,
        readable: Sequence[Path] = (),
        *,
        shared: Sequence[Path] = (),
        store: bool = True,
        proxied: bool = False,
        others: Sequence[str] = (),
        cores: int = 1,
        memory: str = "1g",
        lost_after: int = 60,
        skews: Mapping[str, int] = MappingProxyType({}),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.workers = [f"worker-{number + 1}" for number in range(workers)]
        self.names = [DRIVER, MASTER, *self.workers, *([STORE] if store else []), *others]
        self.hosts = Hosts(self.names, readable, shared=shared, skews=skews)
        self._offer = (workers, cores, memory, lost_after)
        self._with_store = store
        self._proxied = proxied
        self._say = say
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.hosts)
            if self._with_store:
                self._say(f"an S3 server starts on {STORE}")
                self.store = S3Server(self.hosts[STORE])
                self._tell(self.store.variables(proxied=self._proxied))
            self._say(f"Spark starts on {MASTER} and {', '.join(self.workers)}")
            self.spark = Standalone(self.hosts[MASTER], *self._offer)
            settings = "".join(f"{k} {v}\n" for k, v in self.spark.settings().items())
            for host in self.hosts:
                (host.disk / "conf").mkdir()
                (host.disk / "conf/spark-defaults.conf").write_text(settings)
            self._tell({"SPARK_CONF_DIR": "/tmp/conf"})
            self.spark.start_workers(self.hosts[name] for name in self.workers)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def boot(self, name: str) -> None:
        """Start a host that was killed, with what ran there and what it had on its disk."""
        self.hosts.boot(name)
        if name == MASTER:
            self.spark.start_master()
        if name in self.workers:
            self.spark.start_workers([self.hosts[name]])
        if name == STORE:
            self.store.start()

    def _tell(self, variables: Mapping[str, str]) -> None:
        for host in self.hosts:
            host.variables |= variables
