"""A keeper's side of the chain: connections, and what the state machine orders over them."""

import logging
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from godwit.errors import DamagedFileError
from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.state.cache import FileCache
from godwit.worker.chain import ReplicaChain
from godwit.worker.chain_events import (
    STORE,
    Back,
    Came,
    ChainEvent,
    Deliver,
    Fetch,
    Heard,
    Lack,
    Lost,
    Message,
    Need,
    Offer,
    Planned,
    Tell,
    Want,
    Written,
)
from godwit.worker.peer_key import PeerKey
from godwit.worker.peer_wire import Data, Hello, PeerError, Wire, answer, call

SILENCE: Final = 15.0  # seconds in which one that owes an answer says something
RETRY: Final = 5.0  # seconds until one that was lost is tried again
MOST: Final = 512  # connections that others have opened

log = logging.getLogger("godwit")


def listen(host: str) -> socket.socket | None:
    """A port of this host that the system chooses; None where it has none to give."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), 0), family=family)
    except OSError as error:
        log.warning("no port at %s, so that files come from the checkpoint alone: %s", host, error)
        return None


class _Line:
    """What goes to a peer, over a connection that opens with the first thing to say."""

    def __init__(self, peer: ExecutorId) -> None:
        self.peer = peer
        self.orders = SimpleQueue[Tell | Deliver | None]()
        self.wire: Wire | None = None

    def close(self) -> None:
        self.orders.put(None)
        if self.wire is not None:
            self.wire.stop()


class Peers:
    """Carries out what a chain orders: sends, receives and serves files of the cache.

    What is to be read from the store it leaves to its owner, who asks for it with `next_fetch`.
    Without a `key` and a `listener` it knows nobody, so that all comes from the store. Any thread
    may call the methods; those of its own are daemons.
    """

    def __init__(
        self,
        executor: ExecutorId,
        files: FileCache,
        key: PeerKey | None = None,
        listener: socket.socket | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._files = files
        self._key = key
        self._clock = clock
        self._process = uuid.uuid4().hex
        self._changed = threading.Condition()  # and the lock of all below
        self._chain = ReplicaChain(executor)
        self._fetches = deque[FileRef]()
        self._wanted: dict[tuple[ExecutorId, str], FileRef] = {}
        self._addresses: dict[ExecutorId, str] = {}
        self._lines: dict[ExecutorId, _Line] = {}
        self._wires: dict[ExecutorId, tuple[str, set[Wire]]] = {}  # that others opened, by process
        self._heard: dict[ExecutorId, float] = {}  # when one that owes an answer said something
        self._lost: dict[ExecutorId, float] = {}  # since when
        self.received = 0  # bytes, from peers
        self.sent = 0
        self._listener = listener if key is not None else None
        self._is_closed = False
        self._open = 0  # connections that others have opened
        self._guests: set[Wire] = set()  # of them, those that know the secret
        if self._listener is not None:
            self._start(self._listen)

    @property
    def address(self) -> str:
        """Where others reach it; empty where they cannot."""
        if self._listener is None:
            return ""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def lacking(self) -> frozenset[str]:
        """The files that are to come still."""
        with self._changed:
            return self._chain.lacking

    @property
    def awaited(self) -> frozenset[ExecutorId]:
        """The peers that owe an answer."""
        with self._changed:
            return self._chain.awaited

    def written(self, event: Written) -> None:
        """A worker of this executor has written a file."""
        if self._listener is not None:
            self._handle(event)

    def know(self, addresses: Mapping[ExecutorId, str]) -> None:
        """Learn where peers are now."""
        with self._changed:
            for peer, address in addresses.items() if self._listener is not None else ():
                if peer != self._executor and self._addresses.get(peer) != address:
                    self._addresses[peer] = address
                    if peer in self._lines:
                        self._lose(peer)
                    self._welcome_back(peer)

    def plan(self, workers: frozenset[WorkerId], needs: Mapping[str, Need]) -> None:
        """Which workers' replicas are to be here, and what they lack."""
        self._handle(Planned(workers, needs))

    def next_fetch(self, seconds: float) -> FileRef | None:
        """A file to be read from the store, if one is wanted within so many seconds; without one it
        also returns when nothing is lacking any more, or when something was `wake`d for."""
        with self._changed:
            if not self._fetches and self._chain.lacking:
                self._changed.wait(seconds)
            return self._fetches.popleft() if self._fetches else None

    def fetched(self, ref: FileRef, *, sound: bool) -> None:
        """A file was read from the store, or could not be."""
        self._handle(Came(ref.name, STORE, sound))

    def wake(self) -> None:
        """Let who waits for the next fetch look for other things to do."""
        with self._changed:
            self._changed.notify_all()

    def look(self) -> None:
        """Give up those that owe an answer and are silent; try those again that were lost."""
        with self._changed:
            now, awaited = self._clock(), self._chain.awaited
            self._heard = {peer: self._heard.get(peer, now) for peer in awaited}
            for peer in [one for one, since in self._heard.items() if now > since + SILENCE]:
                log.warning("executor %s does not answer", peer)
                self._lose(peer)
            for peer in [one for one, since in self._lost.items() if now > since + RETRY]:
                self._welcome_back(peer)

    def close(self) -> None:
        """End all connections."""
        with self._changed:
            if self._listener is not None:
                self._is_closed = True
                with suppress(OSError):  # to close it would leave the one who waits there
                    self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
            for peer in {*self._lines, *self._wires}:
                self._lose(peer)
            for wire in self._guests:
                wire.stop()

    # -- the state machine ---------------------------------------------------------------------

    def _handle(self, event: ChainEvent) -> None:
        with self._changed:
            orders = deque(self._chain.handle(event))
            while orders:
                match order := orders.popleft():
                    case Fetch(ref):
                        self._fetches.append(ref)
                    case Tell() | Deliver():
                        if isinstance(order, Tell) and isinstance(order.message, Want):
                            ref = order.message.ref
                            self._wanted[order.peer, ref.name] = ref
                        if not self._send(order):
                            orders += self._chain.handle(Lost(order.peer))
            self._changed.notify_all()

    def _send(self, order: Tell | Deliver) -> bool:
        """Put an order on the line of its peer; False if nobody knows where that is."""
        peer = order.peer
        if peer not in self._lines:
            if peer not in self._addresses:
                self._lost.setdefault(peer, self._clock())
                return False
            self._lines[peer] = line = _Line(peer)
            self._start(self._talk, line, self._addresses[peer])
        self._lines[peer].orders.put(order)
        return True

    def _lose(self, peer: ExecutorId) -> None:
        """End all connections with a peer."""
        if (line := self._lines.pop(peer, None)) is not None:
            line.close()
        for wire in self._wires.pop(peer, ("", set()))[1]:
            wire.stop()
        self._wanted = {key: ref for key, ref in self._wanted.items() if key[0] != peer}
        self._heard.pop(peer, None)
        self._lost[peer] = self._clock()
        self._handle(Lost(peer))

    def _welcome_back(self, peer: ExecutorId) -> None:
        if self._lost.pop(peer, None) is not None:
            self._handle(Back(peer))

    # -- threads -------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name="godwit-peer", daemon=True).start()

    def _talk(self, line: _Line, address: str) -> None:
        """Open the connection of a line, and send what is put on it."""
        assert self._key is not None
        try:
            hello = Hello(self._executor, "keeper", self._process, self.address)
            line.wire = wire = call(address, self._key, hello)
            while (order := line.orders.get()) is not None:
                if self._lines.get(line.peer) is not line:  # lost before the connection was open
                    break
                if isinstance(order, Tell):
                    wire.say(order.message)
                else:
                    self._deliver(wire, line.peer, order.ref)
        except OSError as error:
            log.warning("executor %s at %s: %s", line.peer, address, error)
        with self._changed:
            if line.wire is not None:
                line.wire.close()
            if self._lines.get(line.peer) is line:
                self._lose(line.peer)

    def _deliver(self, wire: Wire, peer: ExecutorId, ref: FileRef) -> None:
        try:
            for size in wire.send_file(self._files.path(ref), ref):
                self.sent += size
                self._note(peer)
        except FileNotFoundError:  # it was evicted meanwhile
            wire.say(Lack(ref.name))

    def _listen(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(RETRY)  # out of descriptors
                continue
            if self._open < MOST:
                self._start(self._receive, connection)
            else:
                connection.close()

    def _receive(self, connection: socket.socket) -> None:
        """Take what somebody says over a connection that he opened."""
        assert self._key is not None
        with self._changed:
            self._open += 1
        try:
            wire, hello = answer(connection, self._key)
            with self._changed:
                self._guests.add(wire)
            try:
                if hello.role == "task":
                    self._serve(wire, hello.executor)
                else:
                    self._listen_to(wire, hello)
            finally:
                with self._changed:
                    self._guests.discard(wire)
                wire.close()
        except OSError as error:
            log.info("a connection has ended: %s", error)
        finally:
            with self._changed:
                self._open -= 1

    def _serve(self, wire: Wire, executor: ExecutorId) -> None:
        """Give a task of an executor the files that it asks for."""
        while True:
            message = wire.hear()
            if not isinstance(message, Want):
                raise PeerError(f"a task said {message}")
            if self._files.holds(message.ref):
                self._deliver(wire, executor, message.ref)
            else:
                wire.say(Lack(message.ref.name))

    def _listen_to(self, wire: Wire, hello: Hello) -> None:
        peer = hello.executor
        with self._changed:
            process, wires = self._wires.get(peer, (hello.process, set()))
            if process != hello.process or self._addresses.get(peer) not in (None, hello.address):
                self._lose(peer)  # it is another one now
                wires = set()
            self._addresses[peer] = hello.address
            self._wires[peer] = hello.process, wires | {wire}
            self._welcome_back(peer)
        try:
            while True:
                message = wire.hear()
                if isinstance(message, Data):
                    self._take(wire, peer, message)
                else:
                    self._answer(wire, peer, message)
        finally:
            with self._changed:
                if wire in self._wires.get(peer, ("", set()))[1]:
                    self._lose(peer)

    def _answer(self, wire: Wire, peer: ExecutorId, message: Message) -> None:
        if isinstance(message, Lack):
            with self._changed:
                self._wanted.pop((peer, message.name), None)
        here = isinstance(message, Offer | Want) and self._files.holds(message.ref)
        self._happened(wire, peer, Heard(peer, message, here))

    def _take(self, wire: Wire, peer: ExecutorId, data: Data) -> None:
        """Take a file that was wanted into the cache."""
        with self._changed:
            ref = self._wanted.pop((peer, data.name), None)
        if ref is None or ref.bytes != data.bytes:
            raise PeerError(f"sends {data.name} of {data.bytes} bytes, which nobody wants")
        left = ref.bytes

        def chunks() -> Iterator[memoryview]:
            nonlocal left
            for chunk in wire.chunks(ref.bytes):
                left -= len(chunk)
                self.received += len(chunk)
                self._note(peer)
                yield chunk

        try:
            sound = self._files.take(ref, chunks())
        except DamagedFileError as error:
            log.warning("from executor %s: %s", peer, error)
            sound = False
        if left:  # the disk is full, for example
            raise PeerError(f"{data.name} cannot be kept")
        self._happened(wire, peer, Came(ref.name, peer, sound))

    def _happened(self, wire: Wire, peer: ExecutorId, event: ChainEvent) -> None:
        """Handle what a peer did, unless it was lost meanwhile."""
        with self._changed:
            if wire in self._wires.get(peer, ("", set()))[1]:
                self._note(peer)
                self._handle(event)

    def _note(self, peer: ExecutorId) -> None:
        """A peer that owes an answer is alive."""
        with self._changed:
            if peer in self._heard:
                self._heard[peer] = self._clock()
