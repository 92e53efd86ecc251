"""Whether a store keeps what a checkpoint needs of it: tried once, before it is written to."""

import uuid
from contextlib import suppress

from godwit.errors import ConfigError
from godwit.storage.store import Store, StoreError


def check_store(store: Store) -> None:
    """Raise ConfigError if a store can be seen not to qualify, cannot be reached, or refuses.

    It creates a file twice, looks at it and deletes it, by eleven requests that leave nothing. It
    can refuse a store and cannot prove one, since it is alone with its file.
    """
    name = f"probe-{uuid.uuid4().hex}"
    try:
        problem = _problem(store, name)
    except StoreError as error:
        if error.status == 501:
            problem = _CREATES_TWICE
        else:
            raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"{store}: cannot be written to: {error.strerror or error}") from None
    if problem:
        raise ConfigError(
            f"{store}: this store {problem}; docs/guide/deploying.md names stores that qualify"
        )


_CREATES_TWICE = (
    "ignores the condition that a new file does not exist yet (If-None-Match), so two drivers "
    "could both take a checkpoint for their own"
)


def _problem(store: Store, name: str) -> str | None:
    store.exists(name)  # what remembers that it is not there must forget that
    try:
        store.create(name, b"first")
        if name not in store.names(""):
            return "does not list a file that has just been written"
        if not store.exists(name) or store.read(name) != b"first":
            return "does not show a file that has just been written"
        if _creates(store, name) or store.read(name) != b"first":
            return _CREATES_TWICE
    finally:
        with suppress(OSError):
            store.delete(name)
    if store.exists(name) or name in store.names(""):
        return "still shows a file that has just been deleted"
    return None


def _creates(store: Store, name: str) -> bool:
    try:
        store.create(name, b"second")
    except FileExistsError:
        return False
    return True
