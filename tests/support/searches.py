"""How long hypothesis searches."""

from hypothesis import settings

FULL = 24  # examples in `make test`


def is_brief() -> bool:
    """Is this a search of `make check`? It need not come across everything."""
    return settings().max_examples < FULL
