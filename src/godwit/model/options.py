"""How a query is started: when it runs an epoch, and what most queries leave as it is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import wraps
from typing import Any, Literal, TypeVar

from godwit.errors import ConfigError
from godwit.model.time import Duration

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """The trigger of a query that uses up the input that is there, and ends.

    >>> import godwit as gw
    >>> gw.available_now()
    AvailableNow()
    """


Trigger = Duration | AvailableNow
Replication = Literal["pull", "chain"]


def available_now() -> AvailableNow:
    """Use up the input that is there when the query starts, and end.

    >>> import godwit as gw
    >>> once = gw.available_now()  # job.start("checkpoint", trigger=once)
    """
    return AvailableNow()


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that may be meant."""
    return next(iter(get_close_matches(name, list(names), n=1)), None)


def _suggesting(cls: type[T]) -> type[T]:
    """A class of options that answers a wrong name with the nearest one."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    init: Callable[..., None] = cls.__init__

    @wraps(init)
    def checked(self: T, **given: Any) -> None:
        for name in given:
            if name not in names:
                meant = closest_name(name, names)
                hint = f"did you mean '{meant}'?" if meant else f"there are {', '.join(names)}"
                raise ConfigError(f"there is no option '{name}'; {hint}")
        init(self, **given)

    cls.__init__ = checked  # type: ignore[method-assign, assignment]
    return cls


@_suggesting
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What most queries leave as it is; give it to `Job.start`.

    - `bins`: how many parts the state is cut into, a power of two. By default what the checkpoint
      says; 4096 in a new one. A number that the program named before leaves splits as they are.
    - `retention`: how many of the newest epochs can be read and restored.
    - `replicas`: how many other executors keep a copy of each worker's state. By default one where
      workers are pinned to several executors, else none.
    - `cache_bytes`: the limit of the files that an executor keeps on its own disk.
    - `fetch_rate`: the limit of the bytes that an executor reads from the checkpoint each second.
      By default none.
    - `replication`: how the copies of `replicas` come. With `"pull"`, executors read from the
      checkpoint what was written; with `"chain"`, they open ports and send it to each other.
    - `query_name`: the query's name in Spark and in the log.

    >>> import godwit as gw
    >>> gw.Options(bins=1024, retention=100).retention
    100
    >>> gw.Options(retenton=100)
    Traceback (most recent call last):
    godwit.errors.ConfigError: there is no option 'retenton'; did you mean 'retention'?
    """

    bins: int | None = None
    retention: int = 20
    replicas: int | None = None
    cache_bytes: int = 8 << 30
    fetch_rate: float | None = None
    replication: Replication = "pull"
    query_name: str | None = None
