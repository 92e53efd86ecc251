"""Every error that Godwit raises on purpose, under one root.

Each leaf also inherits the builtin it resembles, carries its fields, pickles cleanly (errors cross
process borders in Spark) and says what to do next.
"""

from typing import Any


class GodwitError(Exception):
    """The root of all errors raised by Godwit.

    >>> import godwit as gw
    >>> try:
    ...     gw.tumbling("a while")
    ... except gw.GodwitError as error:
    ...     print(error)
    'a while' is no duration; write it like '10 seconds' or '1 h 30 m'
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[GodwitError], args: tuple[Any, ...], fields: dict[str, Any]) -> GodwitError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class ConfigError(GodwitError, ValueError):
    """Something was asked for in a way that cannot work; nothing has been changed.

    >>> import godwit as gw
    >>> gw.stream("user string").aggregate("counts", key="usr", n=gw.count())
    Traceback (most recent call last):
    godwit.errors.ConfigError: operator 'counts': key column 'usr' is not in the input: user
    """


class RefusedError(GodwitError, ValueError):
    """A control request was refused; nothing has changed.

    >>> import godwit as gw
    >>> gw.Routing.even(bins=8, workers=2).assign({8: 1})
    Traceback (most recent call last):
    godwit.errors.RefusedError: unknown bin 8: bins are numbered 0 to 7
    """


class InfeasibleError(GodwitError, ValueError):
    """No assignment keeps the load of every worker within its limit; none was made.

    `task` is the heaviest one, of load `load`; `tau` is one that can be kept.

    >>> error = InfeasibleError("bin 3 is too heavy", task=3, load=7.0, tau=0.5)
    >>> error.tau  # query.rescale(4, tau=error.tau)
    0.5
    """

    def __init__(self, reason: str, *, task: int, load: float, tau: float) -> None:
        super().__init__(reason)
        self.task = task
        self.load = load
        self.tau = tau


class IncompatibleError(GodwitError, ValueError):
    """The query at restart does not fit the state in its checkpoint.

    >>> import godwit as gw
    >>> from godwit.testing import Simulation
    >>> views = gw.stream("user string, url string")
    >>> simulation = Simulation(views.aggregate("n", key="user", n=gw.count()).to(gw.console()))
    >>> simulation.feed([{"user": "ann"}])
    >>> try:
    ...     simulation.restart(views.aggregate("n", key="url", n=gw.count()).to(gw.console()))
    ... except gw.IncompatibleError as error:
    ...     print(error.operator)
    n
    """

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"operator '{operator}' does not fit its checkpoint: {reason}")
        self.operator = operator
        self.reason = reason


class CheckpointError(GodwitError, RuntimeError):
    """A checkpoint cannot be used: it is none, or its parts contradict each other.

    >>> print(CheckpointError("/data/counts", "epoch 3 is not retained"))
    checkpoint /data/counts: epoch 3 is not retained
    """

    def __init__(self, checkpoint: str, reason: str) -> None:
        super().__init__(f"checkpoint {checkpoint}: {reason}")
        self.checkpoint = checkpoint
        self.reason = reason


class FencedError(GodwitError, RuntimeError):
    """Another driver took this checkpoint over; this one must stop.

    >>> error = FencedError("/data/counts", generation=3, newer=4)
    >>> error.newer
    4
    """

    def __init__(self, checkpoint: str, generation: int, newer: int) -> None:
        super().__init__(
            f"checkpoint {checkpoint} was taken over: this driver holds generation {generation}, "
            f"generation {newer} exists. Another start of this query, or a restore, took it; "
            "stop this one. What it had not published is not kept."
        )
        self.checkpoint = checkpoint
        self.generation = generation
        self.newer = newer


class DamagedFileError(GodwitError, OSError):
    """A file is damaged, truncated, foreign or of a newer version. Nothing was overwritten.

    >>> print(DamagedFileError("/data/counts/godwit/manifests/7", "is cut off"))
    /data/counts/godwit/manifests/7: is cut off
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class OperatorError(GodwitError, RuntimeError):
    """The user's function raised; nothing of the epoch was kept.

    >>> error = OperatorError("sales", "'pen'", "ZeroDivisionError", epoch=3, worker=1)
    >>> error.operator, error.key, error.epoch
    ('sales', "'pen'", 3)
    """

    def __init__(
        self, operator: str, key: str, cause: str, *, epoch: int = -1, worker: int = -1
    ) -> None:
        super().__init__(
            f"operator '{operator}' failed at key {key} (epoch {epoch}, worker {worker}); "
            f"nothing of this epoch was kept. The original error:\n{cause}"
        )
        self.operator = operator
        self.key = key
        self.cause = cause
        self.epoch = epoch
        self.worker = worker
