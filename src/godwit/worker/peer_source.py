"""Files that a task lacks, from the caches of other executors."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from godwit.model.files import FileRef
from godwit.model.ids import ExecutorId
from godwit.worker.chain_events import Lack, Want
from godwit.worker.peer_key import PeerKey
from godwit.worker.peer_wire import Data, Hello, Wire, call

PATIENCE: Final = 2.0  # seconds that a keeper may be silent; then the store is asked
AVOIDED: Final = 30.0  # seconds in which one with which there was trouble is not asked again

_troubles: Final[dict[str, float]] = {}  # when, by address


class PeerSource:
    """Asks keepers for files, at these addresses in this order; one that had a file is asked first
    for the next. With one there may be trouble: no task of this process asks it for a while."""

    def __init__(
        self,
        key: PeerKey,
        executor: ExecutorId,
        addresses: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key
        self._hello = Hello(executor, "task")
        self._clock = clock
        soon = clock() - AVOIDED
        self._addresses = [one for one in addresses if _troubles.get(one, soon) <= soon]
        self._wires: dict[str, Wire] = {}

    def chunks(self, ref: FileRef) -> Iterator[memoryview] | None:
        """The bytes of a file, as somebody near has it; None if nobody does."""
        for address in [*self._addresses]:
            try:
                wire = self._wire(address)
                wire.say(Want(ref))
                answer = wire.hear()
            except OSError:
                self._give_up(address)
                continue
            if isinstance(answer, Data) and (answer.name, answer.bytes) == (ref.name, ref.bytes):
                return self._read(address, wire, ref)
            if answer != Lack(ref.name):
                self._give_up(address)
        return None

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def _wire(self, address: str) -> Wire:
        if address not in self._wires:
            self._wires[address] = call(address, self._key, self._hello, PATIENCE)
        return self._wires[address]

    def _read(self, address: str, wire: Wire, ref: FileRef) -> Iterator[memoryview]:
        complete = False
        try:
            yield from wire.chunks(ref.bytes)
            complete = True
        finally:
            if complete:
                self._addresses.sort(key=lambda other: other != address)
            else:
                self._give_up(address)

    def _give_up(self, address: str) -> None:
        _troubles[address] = self._clock()
        with suppress(ValueError):
            self._addresses.remove(address)
        if (wire := self._wires.pop(address, None)) is not None:
            wire.close()
