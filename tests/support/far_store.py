"""A directory that is reached as an object store is: by names, and with no path."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Self

from godwit.storage.local import LocalStore
from godwit.storage.store import Store


def _nothing(name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class FarStore(Store):
    """Has what every store has, and nothing besides; counts its requests in this process."""

    near: LocalStore
    requests: Counter[str] = field(default_factory=Counter, compare=False)
    lost: Callable[[str], None] = _nothing  # is called when a file was created, before it is told

    def create(self, name: str, data: bytes) -> None:
        self.requests["create"] += 1
        self.near.create(name, data)
        self.lost(name)

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        self.requests["write"] += 1
        return self.near.write(name)

    def replace(self, name: str, data: bytes) -> None:
        self.near.replace(name, data)

    def read(self, name: str) -> bytes:
        self.requests["read"] += 1
        return self.near.read(name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        self.requests["read"] += 1
        return self.near.read_range(name, start, length)

    def exists(self, name: str) -> bool:
        self.requests["look"] += 1
        return self.near.exists(name)

    def list_files(self, directory: str) -> list[str]:
        self.requests["list"] += 1
        return self.near.list_files(directory)

    def delete(self, name: str) -> None:
        self.near.delete(name)

    def within(self, directory: str) -> Self:
        return replace(self, near=self.near.within(directory))

    def make(self, directory: str = "") -> None:
        self.near.make(directory)

    def address(self, name: str = "") -> str:
        return f"far:/{self.near.address(name)}"

    def url(self, name: str = "") -> str:
        return self.address(name)


def far_store(directory: Path) -> FarStore:
    """A store in a directory, which is made."""
    near = LocalStore(directory, durable=False)
    near.make()
    return FarStore(near)
