"""How many files of its sources a query has not read yet: Spark's progress does not tell.

Spark's log names the files that a source has given to epochs; the others in its directory wait.
"""

import glob
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from godwit.model.unread import UnreadFiles
from godwit.storage.store import Store

SECONDS: Final = 5.0  # from one look into the directories to the next, at least
SOURCES: Final = "sources"  # in Spark's log: what each source keeps, by its number

_SOURCE = re.compile(r"FileSource\[(?:file:(?://)?(?=/))?(.*)\]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


@dataclass(frozen=True, slots=True)
class FileSource:
    """A stream of files of this machine: a directory or a pattern, as Spark reads them."""

    path: str
    pattern: str = "*"  # of names
    deep: bool = False

    @classmethod
    def all(cls, rows: DataFrame) -> tuple["FileSource", ...]:
        """Those that a streaming DataFrame reads; none of other filesystems."""
        leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
        found = set()
        for leaf in map(leaves.apply, range(leaves.length())):
            source = _SOURCE.fullmatch(leaf.toString())
            if source and not _SCHEME.match(source[1]):
                lines = leaf.dataSource().options().mkString("\n").splitlines()
                pairs = (line.partition(" -> ") for line in lines)
                options = {name.lower(): value for name, _, value in pairs}
                deep = options.get("recursivefilelookup", "").lower() == "true"
                name = options.get("pathglobfilter", "*")
                found.add(cls(os.path.abspath(source[1]), name, deep))
        return tuple(found)

    def files(self) -> Iterator[os.DirEntry[str]]:
        """What is there now, without hidden files."""
        for place in self.directories():
            with suppress(NotADirectoryError, FileNotFoundError):
                yield from self._below(place)

    def directories(self) -> Iterator[str]:
        """Those that are there now."""
        return glob.iglob(self.path)

    def _below(self, directory: str) -> Iterator[os.DirEntry[str]]:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")):
                    continue
                if entry.is_dir():
                    if self.deep or "=" in entry.name:  # partitions are read in any case
                        yield from self._below(entry.path)
                elif fnmatchcase(entry.name, self.pattern):
                    yield entry


@dataclass(slots=True)
class SeenFiles:
    """The files that Spark's log of a source names. Of the log, which only grows, it reads what it
    has not read; every tenth file of it holds all before."""

    log: Store
    paths: set[str] = field(default_factory=set)
    _newest: int = -1

    def update(self) -> None:
        names = [name.partition(".") for name in self.log.names("")]
        there = {int(number): end for number, _, end in names if number.isdecimal()}
        new = {number: end for number, end in there.items() if number > self._newest}
        whole = max((number for number, end in new.items() if end == "compact"), default=-1)
        for number in sorted(number for number in new if number >= whole):
            name = f"{number}.compact" if new[number] == "compact" else str(number)
            _version, *lines = self.log.read(name).decode().splitlines()
            self.paths.update(unquote(urlsplit(json.loads(line)["path"]).path) for line in lines)
            self._newest = number


class UnreadWatch:
    """Looks from time to time, beside the epochs, how many files wait."""

    def __init__(self, sources: Sequence[FileSource], logs: Store) -> None:
        self._sources = sources
        self._logs = logs  # those of Spark, by the number of the source
        self._seen: dict[str, SeenFiles] = {}
        self._looked = -SECONDS
        self._looking: threading.Thread | None = None
        self.known: UnreadFiles | None = None  # as of the last look

    def look(self) -> UnreadFiles | None:
        """What is known, while it is found out anew in the background, unless that was just done.

        An epoch begins: Spark's log has the files that it will read.
        """
        known = self.known
        busy = self._looking is not None and self._looking.is_alive()
        if self._sources and not busy and time.monotonic() - self._looked >= SECONDS:
            self._looked = time.monotonic()
            self._looking = threading.Thread(
                target=self._count, name="godwit-unread-files", daemon=True
            )
            self._looking.start()
        return known

    def _count(self) -> None:
        with suppress(
            OSError, ValueError
        ):  # a file may go, or be half written: the next look tells
            logs = self._logs.names("")
            if not logs:  # Spark has not got there
                return
            for name in logs:
                self._seen.setdefault(name, SeenFiles(self._logs.within(name))).update()
            read: set[str] = set().union(*(seen.paths for seen in self._seen.values()))
            unread = {
                file.path: file.stat().st_mtime
                for source in self._sources
                for file in source.files()
                if file.path not in read
            }
            age = max(time.time() - min(unread.values()), 0.0) if unread else 0.0
            self.known = UnreadFiles(len(unread), round(age, 1))
