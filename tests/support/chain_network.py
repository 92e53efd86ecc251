"""Keepers that hand files on to each other, over connections that a test delivers and breaks."""

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.worker.chain import ReplicaChain
from godwit.worker.chain_events import (
    STORE,
    Back,
    Came,
    ChainEvent,
    ChainOrder,
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

WINDOW = 100


class Node:
    """A keeper, and the cache of its executor."""

    def __init__(self, name: ExecutorId, cache: Iterable[str] = ()) -> None:
        self.name = name
        self.chain = ReplicaChain(name, WINDOW)
        self.cache = {*cache}
        self.lost: set[ExecutorId] = set()
        self.asked: dict[str, tuple[ExecutorId, int]] = {}  # source and bytes, by file


class Network:
    """Keepers, and what is on its way between them and from the store.

    It checks on the way what is promised at every moment: a file comes from one source at a time
    and never if it is there, the bytes on the way are bounded, and nobody talks to who is lost.
    """

    def __init__(self, names: Iterable[ExecutorId], choose: random.Random) -> None:
        self.nodes = {name: Node(name) for name in names}
        self.choose = choose
        self.files: dict[str, tuple[FileRef, WorkerId]] = {}  # the store has them all
        self.lines: dict[tuple[ExecutorId, ExecutorId], deque[Message | tuple[FileRef, bool]]] = {}
        self.reads: list[tuple[ExecutorId, FileRef]] = []  # from the store
        self.homes: dict[WorkerId, ExecutorId] = {}
        self.groups: dict[WorkerId, tuple[ExecutorId, ...]] = {}
        self.sent = Counter[str]()  # how often each file went over a connection

    def handle(self, node: Node, event: ChainEvent) -> None:
        if isinstance(event, Came):
            assert node.asked.pop(event.name)[0] == event.source
        elif isinstance(event, Heard) and isinstance(event.message, Lack):
            node.asked.pop(event.message.name)
        elif isinstance(event, Lost):
            node.asked = {n: asked for n, asked in node.asked.items() if asked[0] != event.peer}
        for order in node.chain.handle(event):
            self._obey(node, order)
        self._check(node)

    def _obey(self, node: Node, order: ChainOrder) -> None:
        match order:
            case Fetch(ref):
                self._ask(node, STORE, ref)
                self.reads.append((node.name, ref))
            case Deliver(peer, ref):
                self.line(node.name, peer).append((ref, self.choose.random() < 0.9))
                self.sent[ref.name] += 1
            case Tell(peer, message):
                assert peer not in node.lost
                assert peer != node.name
                if isinstance(message, Want):
                    self._ask(node, peer, message.ref)
                self.line(node.name, peer).append(message)

    def _ask(self, node: Node, source: ExecutorId, ref: FileRef) -> None:
        assert ref.name not in node.asked
        assert ref.name not in node.cache
        node.asked[ref.name] = source, ref.bytes

    def _check(self, node: Node) -> None:
        for source in {source for source, _ in node.asked.values()}:
            sizes = [size for one, size in node.asked.values() if one == source]
            assert sum(sizes) <= WINDOW or len(sizes) == 1

    def line(
        self, sender: ExecutorId, receiver: ExecutorId
    ) -> deque[Message | tuple[FileRef, bool]]:
        return self.lines.setdefault((sender, receiver), deque())

    # -- what may happen

    def write(self, worker: WorkerId, size: int) -> None:
        ref = FileRef(f"{worker}-{len(self.files)}", 1, size, 7)
        self.files[ref.name] = ref, worker
        home = self.nodes[self.homes[worker]]
        home.cache.add(ref.name)
        self.handle(home, Written(ref, worker, self.groups[worker]))

    def deliver(self, sender: ExecutorId, receiver: ExecutorId) -> None:
        """Let the next message arrive."""
        node, message = self.nodes[receiver], self.line(sender, receiver).popleft()
        if isinstance(message, tuple):
            ref, sound = message
            if sound:
                node.cache.add(ref.name)
            self.handle(node, Came(ref.name, sender, sound))
        else:
            name = message.ref.name if isinstance(message, Offer | Want) else message.name
            self.handle(node, Heard(sender, message, name in node.cache))

    def read(self, sound: bool) -> None:
        """Let the oldest read of the store end."""
        name, ref = self.reads.pop(0)
        node = self.nodes[name]
        if ref.name not in node.asked:
            return  # of a keeper that has ended
        if sound:
            node.cache.add(ref.name)
        self.handle(node, Came(ref.name, STORE, sound))

    def part(self, one: ExecutorId, other: ExecutorId) -> None:
        """Break the connection of two."""
        for mine, theirs in ((one, other), (other, one)):
            self.line(mine, theirs).clear()
        for mine, theirs in ((one, other), (other, one)):
            if theirs not in self.nodes[mine].lost:
                self.nodes[mine].lost.add(theirs)
                self.handle(self.nodes[mine], Lost(theirs))

    def join(self, one: ExecutorId, other: ExecutorId) -> None:
        """Let them connect again: each hears of it."""
        for mine, theirs in ((one, other), (other, one)):
            if theirs in self.nodes[mine].lost:
                self.nodes[mine].lost.discard(theirs)
                self.handle(self.nodes[mine], Back(theirs))

    def restart(self, name: ExecutorId, *, keeps: bool) -> None:
        """Kill a keeper and start it again, with or without its cache."""
        for other in self.nodes.keys() - {name}:
            self.part(name, other)
        lost = self.nodes[name].lost
        self.nodes[name] = node = Node(name, self.nodes[name].cache if keeps else ())
        for peer in lost:
            node.lost.add(peer)
            self.handle(node, Lost(peer))
        self.reads = [read for read in self.reads if read[0] != name]

    def plan(self, name: ExecutorId, known: Mapping[str, tuple[FileRef, WorkerId]]) -> None:
        """Tell a keeper what it lacks of the files of an epoch."""
        node = self.nodes[name]
        kept = frozenset(worker for worker, group in self.groups.items() if name in group)
        needs = {
            ref.name: Need(ref, (self.homes[worker], *self.groups[worker]))
            for ref, worker in known.values()
            if worker in kept and ref.name not in node.cache
        }
        self.handle(node, Planned(kept, needs))

    def settle(self) -> None:
        """Deliver all that is on its way, and all that follows."""
        while self.reads or any(self.lines.values()):
            for (sender, receiver), line in list(self.lines.items()):
                while line:
                    self.deliver(sender, receiver)
            while self.reads:
                self.read(sound=True)
