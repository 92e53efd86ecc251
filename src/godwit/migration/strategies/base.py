"""What a strategy is: it chooses the bins of a step, and says how long the rest takes."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Protocol, Self

from godwit.migration.strategies.bins import Bins, left
from godwit.model.ids import WorkerId
from godwit.model.routing import Routing

# By worker: the segments of which it has all files.
Ready = Mapping[WorkerId, Collection[int]] | None

NOTHING: Final[Ready] = MappingProxyType({})


def common(several: Sequence[Ready]) -> Ready:
    """What is ready for all of several operators.

    >>> common([{WorkerId(0): [1, 2], WorkerId(1): [3]}, {WorkerId(0): [2, 4]}])
    {0: {2}}
    """
    told = [ready for ready in several if ready is not None]
    if len(told) < len(several):
        return None
    workers = [worker for worker in told[0] if all(worker in ready for ready in told)]
    return {
        worker: set(told[0][worker]).intersection(*(ready[worker] for ready in told[1:]))
        for worker in workers
    }


@dataclass(frozen=True, slots=True)
class Fetching:
    """What destinations still have to fetch, and how fast they do.

    `lacking` has, for each destination, the bytes of the files that it lacks. `rate` is in bytes a
    second and worker. `work` is how many seconds the slowest worker needs for an epoch.
    """

    lacking: tuple[tuple[int, ...], ...]
    rate: float
    work: float


@dataclass(frozen=True, slots=True)
class Known:
    """What an estimate can rest on: the way that is left, and what was measured so far.

    `pace` is the seconds from one epoch to the next. `arrived` bins took `elapsed` seconds.
    """

    routing: Routing
    target: Routing
    pace: float | None = None
    arrived: int = 0
    elapsed: float = 0.0
    fetching: Fetching | None = None

    @property
    def bins(self) -> Bins:
        """The bins that are left."""
        return left(self.routing, self.target)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long the rest of a migration takes; None: not known. At the target both are 0."""

    epochs: int | None
    seconds: float | None

    @classmethod
    def of(cls, epochs: int, known: Known) -> Self:
        """So many epochs at the pace that is known."""
        return cls(epochs, 0.0 if epochs == 0 else known.pace and known.pace * epochs)


class Strategy(Protocol):
    """Cuts the way from one routing to another into steps.

    Derive from it, as a frozen dataclass. `str` of a strategy is its text form, `name` or
    `name:ARGUMENT`; `parse` reads it back. `usage` and `about` tell people how to write it.

    >>> import godwit as gw
    >>> strategy = gw.batched(2)
    >>> strategy.step(gw.Routing.even(8, 1), gw.Routing.even(8, 2), None).tolist()
    [4, 5]
    """

    __slots__ = ()
    name: ClassVar[str]
    usage: ClassVar[str]
    about: ClassVar[str]

    @classmethod
    def parse(cls, argument: str) -> Self:
        """From what follows the name in its text form; ValueError if that cannot be."""
        if argument:
            raise ValueError(f"{cls.name} takes no argument")
        return cls()

    @classmethod
    def suggested(cls, bins: int) -> Self | None:
        """The one to compare with others for a migration of so many bins; None: better not."""
        return cls()

    def __str__(self) -> str:
        return self.name

    @abstractmethod
    def step(
        self, routing: Routing, target: Routing, waited: int | None, ready: Ready = NOTHING
    ) -> Bins:
        """The bins to move in this epoch; not for ever none, as long as some have to move.

        `waited` is how many epochs without a step have passed since the last one, or since the
        first epoch of the migration (None: this is the first). `ready` is None in the first epoch
        after a start, when nobody has any file, neither the sources nor the destinations.
        """

    @abstractmethod
    def estimate(self, known: Known) -> Estimate:
        """How long the rest takes: more than 0 or not known, as long as some bins have to move."""

    def fetch_seconds(self, work: float) -> float | None:
        """How long destinations fetch files ahead of their steps, in an epoch that follows on one
        with so many seconds of work. None: they do not, but read what moves when it moves."""
        return None
