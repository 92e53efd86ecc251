"""The chain: how keepers hand files of replicas on to each other. A state machine without I/O.

A file that a worker has written goes from its executor to the first of its replica group, which
stores it, hands it on to the next one, and acknowledges it when all behind have it (Rhino, section
4.2.2). A keeper that finds out otherwise what it lacks asks those that should have it, and the
store last. Nothing here is needed for correctness: what a keeper has is what is in its cache.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId, WorkerId
from godwit.worker.chain_events import (
    STORE,
    Ack,
    Back,
    Came,
    ChainEvent,
    ChainOrder,
    Decline,
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

WINDOW: Final = 16 << 20  # bytes


@dataclass(slots=True)
class _Coming:
    """A file that is to come from the first of `sources`: it `flies` if that one was asked."""

    ref: FileRef
    sources: list[ExecutorId]
    offers: dict[ExecutorId, Offer] = field(default_factory=dict)  # to be answered
    flies: bool = False


@dataclass(slots=True)
class _Passing:
    """A file that was offered to `at`, and is to be acknowledged to those it came from."""

    offer: Offer
    at: ExecutorId
    origins: set[ExecutorId]


class ReplicaChain:
    """What a keeper has to tell whom, and to fetch from where.

    At most `window` bytes are on the way from each source, or one file that is larger; a file is on
    the way from one source at a time. What waits for a peer waits no longer than until that is
    lost, and nothing else waits for it. A file that is needed goes on from source to source, the
    store being the last; one that was only offered is given up without those that offered it.
    """

    def __init__(self, executor: ExecutorId, window: int = WINDOW) -> None:
        self._executor = executor
        self._window = window
        self._workers: frozenset[WorkerId] = frozenset()
        self._needed: set[str] = set()  # of those that are coming
        self._coming: dict[str, _Coming] = {}
        self._waiting: dict[ExecutorId, dict[str, None]] = {}  # in order, by the source to be asked
        self._flying = Counter[ExecutorId]()  # bytes, by source
        self._passing: dict[str, _Passing] = {}
        self._lost: set[ExecutorId] = set()

    @property
    def lacking(self) -> frozenset[str]:
        """The files that are needed and are on the way, or wait for that."""
        return frozenset(self._needed)

    @property
    def awaited(self) -> frozenset[ExecutorId]:
        """The peers that owe an answer; one that stays silent is to be declared lost."""
        asked = {source for source, size in self._flying.items() if size}
        return frozenset(asked | {one.at for one in self._passing.values()}) - {STORE}

    def handle(self, event: ChainEvent) -> list[ChainOrder]:
        """What follows of an event."""
        match event:
            case Written(ref, worker, chain):
                orders = self._hand_on(Offer(ref, worker, chain), set())
            case Heard(peer, message, here):
                orders = self._heard(peer, message, here)
            case Came(name, source, sound):
                orders = self._came(name, source, sound)
            case Lost(peer):
                orders = self._lose(peer)
            case Back(peer):
                self._lost.discard(peer)
                orders = []
            case Planned(workers, needs):
                orders = []
                self._plan(workers, needs)
        return orders + self._ask()

    # -- what comes ----------------------------------------------------------------------------

    def _heard(self, peer: ExecutorId, message: Message, here: bool) -> list[ChainOrder]:
        match message:
            case Offer():
                return self._offered(peer, message, here)
            case Want(ref):
                return [Deliver(peer, ref) if here else Tell(peer, Lack(ref.name))]
            case Lack(name):
                return self._came(name, peer, sound=False)
            case Ack(name):
                if (passing := self._passed(name, peer)) is None:
                    return []
                return [Tell(origin, Ack(name)) for origin in sorted(passing.origins)]
            case Decline(name):
                if (passing := self._passed(name, peer)) is None:
                    return []
                return self._hand_on(passing.offer, passing.origins)

    def _offered(self, peer: ExecutorId, offer: Offer, here: bool) -> list[ChainOrder]:
        name = offer.ref.name
        if here:
            return self._hand_on(offer, {peer})
        coming = self._coming.get(name)
        if coming is None:
            if offer.worker not in self._workers:
                return [Tell(peer, Decline(name))]
            coming = self._coming[name] = _Coming(offer.ref, [])
        coming.offers[peer] = offer
        if not (coming.flies and coming.sources[0] == peer):  # it is asked before all others
            others = [source for source in coming.sources[coming.flies :] if source != peer]
            self._set_sources(coming, [peer, *others])
        return []

    def _came(self, name: str, source: ExecutorId, sound: bool) -> list[ChainOrder]:
        coming = self._coming.get(name)
        if coming is None or not coming.flies or coming.sources[0] != source:
            return []
        if not sound:
            return self._without(coming, source)
        self._forget(coming)
        orders: list[ChainOrder] = []
        for peer, offer in coming.offers.items():
            orders += self._hand_on(offer, {peer})
        return orders

    def _without(self, coming: _Coming, source: ExecutorId) -> list[ChainOrder]:
        """A source has not got a file: ask the others, or give it up."""
        orders: list[ChainOrder] = []
        if coming.offers.pop(source, None) is not None and source not in self._lost:
            orders.append(Tell(source, Decline(coming.ref.name)))
        if coming.sources[0] == source:
            self._land(coming)
        others = [other for other in coming.sources[coming.flies :] if other != source]
        self._set_sources(coming, others)
        return orders

    def _set_sources(self, coming: _Coming, sources: Sequence[ExecutorId]) -> None:
        """Whom to ask for a file that waits, or that does not come from where it was asked for; if
        there is nobody, it is given up."""
        name = coming.ref.name
        if coming.flies:
            coming.sources[1:] = sources
            return
        if coming.sources:
            self._waiting.get(coming.sources[0], {}).pop(name, None)
        coming.sources[:] = sources
        if coming.sources:
            self._waiting.setdefault(coming.sources[0], {})[name] = None
        else:
            self._forget(coming)

    def _land(self, coming: _Coming) -> None:
        """What was on its way has come, or never will."""
        if coming.flies:
            coming.flies = False
            self._flying[coming.sources[0]] -= coming.ref.bytes

    def _forget(self, coming: _Coming) -> None:
        """A file is here, or is given up."""
        name = coming.ref.name
        self._land(coming)
        if coming.sources:
            self._waiting.get(coming.sources[0], {}).pop(name, None)
        self._needed.discard(name)
        del self._coming[name]

    def _ask(self) -> list[ChainOrder]:
        """Let files come that wait, in order, as far as the window of their source goes."""
        orders: list[ChainOrder] = []
        for source, names in self._waiting.items():
            while names:
                coming = self._coming[next(iter(names))]
                flying, size = self._flying[source], coming.ref.bytes
                if flying and flying + size > self._window:
                    break
                del names[coming.ref.name]
                coming.flies = True
                self._flying[source] += size
                ref = coming.ref
                orders.append(Fetch(ref) if source == STORE else Tell(source, Want(ref)))
        return orders

    # -- what goes -----------------------------------------------------------------------------

    def _hand_on(self, offer: Offer, origins: Iterable[ExecutorId]) -> list[ChainOrder]:
        """Offer a file to the first of those that can be reached; without one, all have it."""
        name, chain = offer.ref.name, offer.behind
        if (known := self._passing.get(name)) is not None:
            known.origins |= set(origins)
            return []
        while chain and (chain[0] in self._lost or chain[0] == self._executor):
            chain = chain[1:]
        if not chain:
            return [Tell(origin, Ack(name)) for origin in sorted(origins)]
        offered = Offer(offer.ref, offer.worker, chain[1:])
        self._passing[name] = _Passing(offered, chain[0], set(origins))
        return [Tell(chain[0], offered)]

    def _passed(self, name: str, peer: ExecutorId) -> _Passing | None:
        """What a peer was offered and answers now, which is no longer offered to it."""
        passing = self._passing.get(name)
        return self._passing.pop(name) if passing is not None and passing.at == peer else None

    # -- peers and plans -----------------------------------------------------------------------

    def _lose(self, peer: ExecutorId) -> list[ChainOrder]:
        self._lost.add(peer)
        orders: list[ChainOrder] = []
        for coming in [one for one in self._coming.values() if peer in one.sources]:
            orders += self._without(coming, peer)
        for passing in self._passing.values():
            passing.origins.discard(peer)
        for name in [name for name, one in self._passing.items() if one.at == peer]:
            passing = self._passing.pop(name)
            orders += self._hand_on(passing.offer, passing.origins)
        return orders

    def _plan(self, workers: frozenset[WorkerId], needs: Mapping[str, Need]) -> None:
        self._workers = workers
        self._needed = set(needs)
        for name, need in needs.items():
            if name not in self._coming:
                self._coming[name] = _Coming(need.ref, [])
        for name, coming in [*self._coming.items()]:
            asked, waiting = coming.sources[: coming.flies], coming.sources[coming.flies :]
            if name in needs:
                waiting = [source for source in waiting if source != STORE]
                beyond = {self._executor, *self._lost, *asked, *waiting}
                waiting += [one for one in needs[name].sources if one not in beyond]
                if STORE not in asked:
                    waiting.append(STORE)
            else:
                waiting = [source for source in waiting if source in coming.offers]
            self._set_sources(coming, waiting)
