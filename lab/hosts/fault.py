"""What a store may do to its clients, as values: who is treated how, without a network."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, get_args

Kind = Literal["delay", "throttle", "full", "hang", "truncate", "lose"]
WRITES: Final = ("PUT", "POST")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the next `times` requests, or to all, that have one of these methods and
    `path` in their path; of all methods if none is named.

    - `delay`: it takes `seconds` more. Delays add up, and another fault may come after them.
    - `throttle`: it is refused with 503, to be tried again after `seconds`.
    - `full`: a PUT or POST is refused with 507, since the store is full.
    - `hang`: it is taken, and neither done nor answered until the faults change.
    - `truncate`: its answer ends after half of the body.
    - `lose`: it is done, and the connection ends without an answer.

    >>> Fault("lose", methods=("PUT",), path="/log/", times=1)
    Fault(kind='lose', methods=('PUT',), path='/log/', seconds=0.0, times=1)
    """

    kind: Kind
    methods: tuple[str, ...] = ()
    path: str = ""
    seconds: float = 0.0
    times: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"no fault is called '{self.kind}': {', '.join(get_args(Kind))}")

    def fits(self, method: str, path: str) -> bool:
        methods = self.methods or (WRITES if self.kind == "full" else (method,))
        return method in methods and self.path in path

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        return cls(**dict(told) | {"methods": tuple(told["methods"])})


class Faults:
    """Those that hold now, and how many requests there were.

    The first that fits decides, and is used up by that; delays only add up.

    >>> faults = Faults([Fault("delay", seconds=0.05), Fault("throttle", times=1)])
    >>> faults.meet("GET", "/bucket/key")
    (0.05, Fault(kind='throttle', methods=(), path='', seconds=0.0, times=1))
    >>> faults.meet("GET", "/bucket/key")
    (0.05, None)
    >>> faults.counts["GET"], faults.counts["throttle"]
    (2, 1)
    """

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.counts: Counter[str] = Counter()  # of requests by method, and of faults by kind
        self.replace(faults)

    def replace(self, faults: Iterable[Fault]) -> None:
        """Let these hold, and no others."""
        self._left: list[tuple[Fault, Counter[str]]] = [(fault, Counter()) for fault in faults]

    def meet(self, method: str, path: str) -> tuple[float, Fault | None]:
        """How long a request is delayed, and what happens to it then."""
        self.counts[method] += 1
        seconds = 0.0
        for fault, met in self._left:
            if fault.fits(method, path) and (fault.times is None or met["times"] < fault.times):
                met["times"] += 1
                self.counts[fault.kind] += 1
                if fault.kind != "delay":
                    return seconds, fault
                seconds += fault.seconds
        return seconds, None
