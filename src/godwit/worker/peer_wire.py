"""How keepers talk over a connection: who is there, messages, and the bytes of files.

A message is JSON behind its length. Only one side of a connection speaks at a time, so that TLS
needs no lock: what a keeper tells another goes over a connection that it opened itself, and the
answers come over one that the other opened. A task asks and gets its answer over one connection.
"""

import json
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.worker.chain_events import Ack, Decline, Lack, Message, Offer, Want
from godwit.worker.peer_key import SIZE, PeerKey

CHUNK: Final = 1 << 20
LARGEST: Final = 1 << 20  # bytes of a message
FIRST: Final = 1 << 12  # of one from who is not known yet
GREETING: Final = 5.0  # seconds until both know who is there

_LENGTH: Final = struct.Struct(">I")
_IDLE: Final = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
_UNANSWERED: Final = 10_000  # milliseconds


class PeerError(OSError):
    """A connection that ended, or on which something else was said than should be."""


@dataclass(frozen=True, slots=True)
class Data:
    """What a file that was wanted begins with; its bytes follow."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Hello:
    """Who opens a connection: a keeper, which tells where it listens, or a task, which asks."""

    executor: ExecutorId
    role: Literal["keeper", "task"]
    process: str = ""  # another one for each process
    address: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        return cls(**json.loads(data))


class Wire:
    """A connection, whose other end has proved that it knows the secret.

    Any trouble of it is an OSError.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = memoryview(bytearray(CHUNK))

    def say(self, message: Message | Data) -> None:
        self._say(json.dumps(_to_json(message)).encode())

    def hear(self) -> Message | Data:
        try:
            return _from_json(json.loads(self._hear(LARGEST)))
        except (ValueError, TypeError, LookupError) as error:
            raise PeerError(f"not a message: {error}") from error

    def send_file(self, path: str, ref: FileRef) -> Iterator[int]:
        """Send a file behind its `Data`, and tell of each piece how large it was.

        FileNotFoundError, and nothing is sent, if there is none.
        """
        with open(path, "rb", buffering=0) as file:
            self.say(Data(ref.name, ref.bytes))
            sent = 0
            while sent < ref.bytes:
                size = self._socket.sendfile(file, sent, min(CHUNK, ref.bytes - sent))
                if not size:
                    raise PeerError(f"{path} has {sent} bytes, not {ref.bytes}")
                sent += size
                yield size

    def chunks(self, size: int) -> Iterator[memoryview]:
        """So many bytes, in pieces that are valid until the next."""
        while size:
            got = self._socket.recv_into(self._buffer, min(size, CHUNK))
            if not got:
                raise PeerError("the connection ended within a file")
            size -= got
            yield self._buffer[:got]

    def wait_for(self, seconds: float | None) -> None:
        """Let each wait for the other side take so long at most; None: for ever."""
        self._socket.settimeout(seconds)

    def stop(self) -> None:
        """Let whoever waits for the other side, or talks to it, fail; any thread may call it."""
        with suppress(OSError):  # that of TLS would forget its keys before it ends
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """For the thread that uses it, since the system gives its number to others."""
        self.stop()
        self._socket.close()

    def _say(self, data: bytes) -> None:
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def _hear(self, most: int) -> bytes:
        (length,) = _LENGTH.unpack(b"".join(map(bytes, self.chunks(_LENGTH.size))))
        if length > most:
            raise PeerError(f"a message of {length} bytes")
        return b"".join(map(bytes, self.chunks(length)))

    # -- who is there

    def greet(self, key: PeerKey, hello: Hello) -> None:
        """Say who opens the connection, to one that proves to know the secret first."""
        mine, theirs = secrets.token_bytes(SIZE), self._hear(FIRST)
        who = hello.to_bytes()
        self._say(mine)
        if not key.is_proof(self._hear(FIRST), b"listener", theirs, mine):
            raise PeerError("does not know the secret of this query")
        self._say(who)
        self._say(key.prove(b"caller", theirs, mine, who))

    def welcome(self, key: PeerKey) -> Hello:
        """Learn who has opened the connection."""
        mine = secrets.token_bytes(SIZE)
        self._say(mine)
        theirs = self._hear(FIRST)
        self._say(key.prove(b"listener", mine, theirs))
        who = self._hear(FIRST)
        if not key.is_proof(self._hear(FIRST), b"caller", mine, theirs, who):
            raise PeerError("does not know the secret of this query")
        return Hello.from_bytes(who)


def call(address: str, key: PeerKey, hello: Hello, patience: float | None = None) -> Wire:
    """Open a connection to a keeper, which may be silent for as long as one has `patience`."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection(
        (host.strip("[]"), int(port)), timeout=patience or GREETING
    )
    try:
        _watch(connection)
        if key.is_encrypted:
            connection = key.client_context.wrap_socket(connection)
        wire = Wire(connection)
        wire.greet(key, hello)
    except BaseException:
        connection.close()
        raise
    wire.wait_for(patience)
    return wire


def answer(connection: socket.socket, key: PeerKey) -> tuple[Wire, Hello]:
    """Take a connection that somebody has opened, if that one knows the secret."""
    try:
        connection.settimeout(GREETING)
        _watch(connection)
        if key.is_encrypted:
            connection = key.server_context.wrap_socket(connection, server_side=True)
        wire = Wire(connection)
        hello = wire.welcome(key)
    except (ValueError, TypeError) as error:
        connection.close()
        raise PeerError(f"not a greeting: {error}") from error
    except BaseException:
        connection.close()
        raise
    wire.wait_for(None)
    return wire, hello


def _watch(connection: socket.socket) -> None:
    """Notice a host that is gone, and hold nothing back."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED)
    for option, value in _IDLE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _to_json(message: Message | Data) -> list[Any]:
    match message:
        case Offer(ref, worker, behind):
            return ["offer", ref.to_json(), worker, behind]
        case Want(ref):
            return ["want", ref.to_json()]
        case Data(name, size):
            return ["data", name, size]
        case Lack(name) | Ack(name) | Decline(name):
            return [type(message).__name__.lower(), name]


def _from_json(data: list[Any]) -> Message | Data:
    match data:
        case ["offer", ref, worker, behind]:
            return Offer(FileRef.from_json(ref), WorkerId(worker), tuple(behind))
        case ["want", ref]:
            return Want(FileRef.from_json(ref))
        case ["data", str(name), int(size)]:
            return Data(name, size)
        case ["lack", str(name)]:
            return Lack(name)
        case ["ack", str(name)]:
            return Ack(name)
        case ["decline", str(name)]:
            return Decline(name)
    raise PeerError(f"unknown message {data}")
