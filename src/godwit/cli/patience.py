"""How long commands wait for a query, and how often they look."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Patience:
    """All in seconds."""

    answer: float = 20.0  # in which a query has to answer a request
    longest: float = 120.0  # and where epochs are long
    look: float = 0.1  # between two looks for an answer, or for the end of a query
    follow: float = 0.2  # between two looks at what goes on
    silence: float = 30.0  # without an epoch, until somebody who watches is told
    restart: float = 5.0  # in which a process that is gone may be started again


USUAL: Final = Patience()
