"""Starting the keeper of an executor from a task: executors run Python only inside of tasks."""

import fcntl
import logging
import os
import subprocess
import sys
from dataclasses import replace
from typing import Final

from godwit.worker.executor_process import jvm
from godwit.worker.keeper import LOCK, LOG, KeeperSpec

log = logging.getLogger("godwit")

MODULE: Final = "godwit.worker.keeper"


def ensure(spec: KeeperSpec) -> bool:
    """See that the keeper of this process's executor runs; True if it had to be started.

    Where none can be (there is no JVM above this process, or no cache), replicas are not kept.
    """
    directory = spec.cache.path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # there is one
        os.close(lock)
        return False
    try:
        return _start(spec, lock)
    except OSError:  # of memory or disk; replicas lag, and the next task tries again
        log.warning("the keeper of replicas could not be started", exc_info=True)
        return False
    finally:
        os.close(lock)  # the keeper has a descriptor of its own, and with it the lock


def _start(spec: KeeperSpec, lock: int) -> bool:
    executor = jvm()
    if executor is None:
        return False
    cache = replace(spec.cache, directory=str(spec.cache.path.parent))
    with open(spec.cache.path / LOG, "wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", MODULE),
                *(str(executor.pid), str(executor.started), str(lock)),
            ],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[lock],
            start_new_session=True,
            text=True,
        )
    assert process.stdin is not None
    with process.stdin as given:
        given.write(replace(spec, cache=cache).to_text())
    return True
