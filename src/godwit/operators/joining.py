"""What a join is asked for: its columns by name, its bounds in time, and whether both fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

import pyarrow as pa

from godwit.errors import ConfigError
from godwit.model.options import closest_name
from godwit.model.schema import to_ddl
from godwit.model.time import Duration, micros
from godwit.operators import definition
from godwit.operators.definition import TIME
from godwit.operators.matching import Bounds

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: Final[tuple[How, ...]] = get_args(How)
FROM_LEFT: Final = ("semi", "anti")  # rows of the left come out, and nothing of the right

On = str | Sequence[str | tuple[str, str]] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Joining:
    """The columns that both inputs of a join are matched by, and its bounds.

    `on` has the names of each key column on the left and on the right, `times` those of the event
    time.
    """

    how: How
    on: tuple[tuple[str, str], ...]
    within: Bounds | None
    times: tuple[str, str]

    @classmethod
    def of(
        cls,
        on: On,
        how: How,
        within: tuple[Duration, Duration] | None,
        time: str | tuple[str, str] | None,
        delay: Duration | None,
    ) -> Self:
        """As a user says it; refuses what is no join."""
        if how not in HOWS:
            meant = closest_name(str(how), HOWS)
            hint = f"did you mean '{meant}'?" if meant else f"there are {', '.join(HOWS)}"
            raise ConfigError(f"there is no join '{how}'; {hint}")
        names = _pairs(on)
        if within is None:
            if how not in ("inner", "semi"):
                raise ConfigError(
                    f"without bounds no row of a join '{how}' is ever known to be unmatched; give "
                    "it within=('-10 minutes', '5 minutes') with time=... and delay=..."
                )
            if time is not None or delay is not None:
                raise ConfigError("time and delay go with within=..., the bounds of the times")
            return cls(how, names, None, ("", ""))
        if time is None or delay is None:
            raise ConfigError(
                "within=... needs the column of the event time, time=..., and delay=..., how far "
                "it may be behind the newest time seen"
            )
        times = _both(time)
        if times is None:
            raise ConfigError(
                f"time is a column, or one of the left and one of the right, not {time!r}"
            )
        for pair in names:
            for name, other in zip(pair, times, strict=True):
                if name == other:
                    raise ConfigError(f"its time '{name}' cannot be in the key")
        return cls(how, names, _bounds(within), times)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, as the left calls them."""
        return tuple(left for left, _ in self.on)

    @property
    def shared(self) -> tuple[str, ...]:
        """The columns that both sides have, once they are renamed."""
        return self.key if self.within is None else (*self.key, TIME)

    def renamed(self, side: int) -> dict[str, str]:
        """What columns of a side are to be called."""
        key = {pair[side]: pair[0] for pair in self.on}
        return key if self.within is None else {**key, self.times[side]: TIME}

    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """Refuse columns that are not there, of another type, or in the way of one another."""
        inputs = (("left", left), ("right", right))
        for role, pair in [*(("key", pair) for pair in self.on), ("time", self.times)]:
            if not pair[0]:
                continue
            found = [_find(role, name, *input) for name, input in zip(pair, inputs, strict=True)]
            if found[0].type != found[1].type:
                kinds = [_ddl(field) for field in found]
                raise ConfigError(
                    f"{role} column '{pair[0]}' of the left is {kinds[0]} and '{pair[1]}' of the "
                    f"right is {kinds[1]}; cast one of them, as in "
                    f"""withColumn("{pair[1]}", col("{pair[1]}").cast("{kinds[0]}"))"""
                )
        for (kind, columns), time in zip(inputs, self.times, strict=True):
            if time != TIME and self.within is not None and TIME in columns.names:
                raise ConfigError(
                    f"column '{TIME}' of the {kind} has a name that Godwit uses itself; rename it"
                )
        for name in right.names:
            if name in self.key and name not in [of_right for _, of_right in self.on]:
                raise ConfigError(
                    f"column '{name}' of the right has the name of a key column of the left; "
                    f"""rename it, as in withColumnRenamed("{name}", "right_{name}")"""
                )


def _pairs(on: On) -> tuple[tuple[str, str], ...]:
    """The names of each key column on both sides."""
    if not isinstance(on, Iterable):
        raise ConfigError(f"on=... takes the key, a column or several or pairs, not {on!r}")
    given = [on] if isinstance(on, str) else on.items() if isinstance(on, Mapping) else on
    pairs: list[tuple[str, str]] = []
    for one in given:
        pair = _both(one)
        if pair is None:
            raise ConfigError(f"a key is a column of both, or a pair of them, not {one!r}")
        pairs.append(pair)
    for side, kind in enumerate(("left", "right")):
        names = [pair[side] for pair in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"key column '{twice[0]}' of the {kind} is given twice")
    return tuple(pairs)


def _both(given: Any) -> tuple[str, str] | None:
    """A name on the left and on the right: the same, or a pair; None if it is neither."""
    if isinstance(given, str):
        return given, given
    pair = tuple(given) if isinstance(given, Sequence) else ()
    return (pair[0], pair[1]) if len(pair) == 2 else None


def _bounds(within: tuple[Duration, Duration]) -> Bounds:
    if isinstance(within, str) or not isinstance(within, Sequence) or len(within) != 2:
        raise ConfigError(
            f"within=... takes two bounds, as in ('-5 minutes', '0 s'), not {within!r}"
        )
    lower, upper = map(_signed, within)
    if lower > upper:
        raise ConfigError(f"nothing is within '{within[0]}' and '{within[1]}'; swap the bounds")
    return lower, upper


def _signed(duration: Duration) -> int:
    """A duration that may be negative.

    >>> _signed("-1.5 seconds"), _signed("2 s")
    (-1500000, 2000000)
    """
    text = duration.strip() if isinstance(duration, str) else ""
    return -micros(text[1:]) if text.startswith("-") else micros(duration)


def _find(role: str, name: str, kind: str, input: pa.Schema) -> pa.Field:
    try:
        return definition.find(role, name, input)
    except ConfigError as error:
        raise ConfigError(f"on the {kind}, {error}") from None


def _ddl(field: pa.Field) -> str:
    return to_ddl(pa.schema([field.with_name("x").with_nullable(True)])).removeprefix("`x` ")
