"""Messages of HTTP/1.1 as they come, without a look into their bodies."""

from asyncio import IncompleteReadError, StreamReader
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Self

_PIECE: Final = 1 << 18
BODILESS: Final = (204, 304)


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a message, and its headers by their names in small letters."""

    first: str
    headers: dict[str, str]
    raw: bytes

    @classmethod
    async def read(cls, reader: StreamReader) -> Self | None:
        """None if no message comes any more."""
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
        except (IncompleteReadError, ConnectionError):
            return None
        first, *lines = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(first, {name.lower(): value.strip() for name, _, value in pairs}, raw)

    @property
    def method(self) -> str:
        return self.first.split()[0]

    @property
    def path(self) -> str:
        return self.first.split()[1]

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    @property
    def length(self) -> int | None:
        """Of the body; None if it is in chunks, or ends with the connection."""
        length = self.headers.get("content-length")
        return None if length is None else int(length)

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def lasting(self) -> bool:
        """Whether a connection goes on after this answer."""
        ends = self.length is None and not self.chunked and self.status not in BODILESS
        ended = self.headers.get("connection", "").lower() == "close"
        return not (ends or ended or self.first.startswith("HTTP/1.0"))

    def without(self, header: str) -> bytes:
        """It as bytes, but for one header."""
        lines = self.raw.split(b"\r\n")
        return b"\r\n".join(
            line for line in lines if not line.lower().startswith(header.encode() + b":")
        )


async def request_body(head: Head, reader: StreamReader) -> AsyncIterator[bytes]:
    """The bytes behind the head of a request, in pieces."""
    async for piece in _chunks(reader) if head.chunked else _plain(reader, head.length or 0):
        yield piece


async def answer_body(head: Head, method: str, reader: StreamReader) -> AsyncIterator[bytes]:
    """The bytes behind the head of the answer to a request with this method, in pieces."""
    if method == "HEAD" or head.status in BODILESS:
        return
    async for piece in _chunks(reader) if head.chunked else _plain(reader, head.length):
        yield piece


async def _plain(reader: StreamReader, length: int | None) -> AsyncIterator[bytes]:
    """As many bytes as were announced, or all that come."""
    left = length
    while left is None or left:
        piece = await reader.read(_PIECE if left is None else min(left, _PIECE))
        if not piece:
            if left is None:
                return
            raise IncompleteReadError(b"", left)
        left = None if left is None else left - len(piece)
        yield piece


async def _chunks(reader: StreamReader) -> AsyncIterator[bytes]:
    """Chunks with their sizes, and what follows the last one."""
    while True:
        line = await reader.readuntil(b"\r\n")
        yield line
        size = int(line.split(b";")[0], 16)
        if not size:
            break
        async for piece in _plain(reader, size + len(b"\r\n")):
            yield piece
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        yield line
    yield line
