"""A store that fails as it is told to: `python -m lab.hosts.fault_proxy ADDRESS PORT UPSTREAM`.

It stands before an S3 server, which listens at the port UPSTREAM of this host, and passes requests
on as they are, so that their signatures hold. A line on standard input is a list of faults that
hold from then on; the line that answers it says how many requests there have been. The first line
it prints is its own port. It ends with its input.
"""

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from subprocess import PIPE, Popen
from typing import Any, Final

from lab.hosts.fault import Fault, Faults
from lab.hosts.messages import Head, answer_body, request_body

_REFUSALS: Final = {
    "throttle": (HTTPStatus.SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."),
    "full": (HTTPStatus.INSUFFICIENT_STORAGE, "InsufficientStorage", "The store is full."),
}
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class FaultProxy:
    """The proxy, as who started it sees it: `start` runs a command with the options of `Popen`."""

    def __init__(
        self, start: Callable[..., Popen[str]], address: str, upstream: int, port: int = 0
    ) -> None:
        arguments = ("-m", __name__, address, str(port), str(upstream))
        self._process = start([sys.executable, *arguments], stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())

    def set(self, *faults: Fault) -> Mapping[str, int]:
        """Let these faults hold, and no others. The counts until then: of requests by their method,
        and of faults by their kind."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([fault.to_json() for fault in faults]), file=self._process.stdin)
        self._process.stdin.flush()
        counts: Mapping[str, int] = json.loads(self._process.stdout.readline())
        return counts


class _Serving:
    """What the process of the proxy does."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._faults = Faults()
        self._changed = asyncio.Event()

    def change(self, faults: Iterable[Fault]) -> Mapping[str, int]:
        self._faults.replace(faults)
        self._changed.set()
        self._changed = asyncio.Event()
        return self._faults.counts

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while (head := await Head.read(reader)) and await self._answer(head, reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # either side is gone, and the other one sees that, too
        finally:
            writer.close()

    async def _answer(self, head: Head, reader: StreamReader, writer: StreamWriter) -> bool:
        """Whether the connection goes on."""
        seconds, fault = self._faults.meet(head.method, head.path)
        await asyncio.sleep(seconds)
        if "expect" in head.headers:
            writer.write(_CONTINUE)
        if fault is not None and fault.kind == "hang":
            await self._changed.wait()
            return False
        if fault is not None and fault.kind in _REFUSALS:
            async for _ in request_body(head, reader):
                pass
            writer.write(_refusal(fault, head.method))
            return True
        answers, server = await asyncio.open_connection("localhost", self._upstream)
        try:
            server.write(head.without("expect"))
            async for piece in request_body(head, reader):
                server.write(piece)
                await server.drain()
            return await self._pass_on(head.method, answers, writer, fault)
        finally:
            server.close()

    async def _pass_on(
        self, method: str, answers: StreamReader, writer: StreamWriter, fault: Fault | None
    ) -> bool:
        """Whether the connection goes on after this answer."""
        answer = await Head.read(answers)
        while answer is not None and answer.status < HTTPStatus.OK:  # the server goes on to read
            answer = await Head.read(answers)
        if answer is None:
            return False
        lost = fault is not None and fault.kind == "lose"
        if not lost:
            writer.write(answer.raw)
        left = (answer.length or 0) // 2 if fault is not None and fault.kind == "truncate" else None
        async for piece in answer_body(answer, method, answers):
            if lost:
                continue
            writer.write(piece if left is None else piece[:left])
            await writer.drain()
            if left is not None and (left := left - len(piece)) <= 0:
                return False
        return not lost and answer.lasting


def _refusal(fault: Fault, method: str) -> bytes:
    status, code, text = _REFUSALS[fault.kind]
    body = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/xml"]
    if fault.kind == "throttle":
        lines += [f"Retry-After: {fault.seconds:.0f}"]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


async def main(address: str, port: int, upstream: int) -> None:
    serving = _Serving(upstream)
    server = await asyncio.start_server(serving.serve, address, port)
    print(server.sockets[0].getsockname()[1], flush=True)
    lines = StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        told: list[Mapping[str, Any]] = json.loads(line)
        print(json.dumps(serving.change(map(Fault.from_json, told))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
