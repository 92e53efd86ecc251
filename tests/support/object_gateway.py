"""A server of objects in this process that does as a test wants: it fails, loses answers, or does
not keep what a store has to promise.

It speaks as much of S3 as stores need; Google's storage is asked in nearly the same words.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from godwit.storage.location import object_store
from godwit.storage.store import Store

Fault = Literal["ignores conditions", "reads late", "lists late", "keeps deleted"]
Act = int | Literal["do", "lose", "cut"]
"""Of a write: answer so without doing it, do it, do it and lose the answer, or lose the request."""

SECRET = "very/secret+key"
KEY = "AKIAVERYSECRETID"


@dataclass
class Gateway:
    """What the server has, what it was asked for, and what it is to do with the next writes."""

    port: int = 0
    faults: frozenset[Fault] = frozenset()
    objects: dict[str, bytes] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)  # "do" when there are none
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    listed: dict[str, bytes] = field(default_factory=dict)  # as a late list shows it

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.asked]

    def s3(self) -> Store:
        return object_store(
            "s3://bucket/query",
            endpoint=self.endpoint,
            access_key_id=KEY,
            secret_access_key=SECRET,
        )

    def gs(self) -> Store:
        return object_store("gs://bucket/query", endpoint=self.endpoint, bearer_token=SECRET)


@contextmanager
def gateway(*faults: Fault) -> Iterator[Gateway]:
    state = Gateway(faults=frozenset(faults))

    class Handler(_Handler):
        gateway = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gateway: Gateway

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        key, state = self._note(), self.gateway
        act = state.acts.pop(0) if state.acts else "do"
        if isinstance(act, int):
            self._answer(act, f"<Error><Code>Told</Code><Key>{KEY} {SECRET}</Key></Error>".encode())
        elif act == "cut":
            self._hang_up()
        elif self._is_refused(key):
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            state.listed = dict(state.objects)
            state.objects[key] = data
            if act == "lose":
                self._hang_up()
            else:
                self._answer(200)

    def do_GET(self) -> None:
        key, state = self._note(), self.gateway
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0])
        elif key not in state.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif "reads late" in state.faults:
            state.faults -= {"reads late"}
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._give(state.objects[key])

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self) -> None:
        key = self._note()
        if "keeps deleted" not in self.gateway.faults:
            self.gateway.objects.pop(key, None)
        self._answer(204)

    def _give(self, data: bytes) -> None:
        """An object, or the range of it that was asked for."""
        if not (asked := self.headers.get("range")):
            return self._answer(200, data)
        start, end = map(int, asked.removeprefix("bytes=").split("-"))
        if start >= len(data):
            return self._answer(416)
        part = data[start : end + 1]
        return self._answer(
            206, part, {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"}
        )

    def _note(self) -> str:
        """Write down what is asked for, and give the key that it is about."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.gateway.asked.append((self.command, self.path, headers))
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").removeprefix("/")

    def _is_refused(self, key: str) -> bool:
        once = self.headers.get("if-none-match") == "*"
        once |= self.headers.get("x-goog-if-generation-match") == "0"
        state = self.gateway
        return once and key in state.objects and "ignores conditions" not in state.faults

    def _list(self, prefix: str) -> None:
        state = self.gateway
        shown = state.listed if "lists late" in state.faults else state.objects
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(shown.items())
            if key.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())

    def _answer(
        self, status: int, body: bytes = b"", more: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("x-goog-generation", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""
