"""A checkpoint in an object store: S3 and servers that speak as it does, Google's, Azure's."""

import errno
import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Final, Self, cast

from godwit.storage.object_client import (
    Bucket,
    Client,
    Kind,
    attempts,
    condition,
    count,
    errors_of,
    may_pass,
    request,
)
from godwit.storage.store import Store, StoreError, UnknownOutcomeError

PIECE: Final = 8 << 20  # what one request reads of a file
PART: Final = 16 << 20  # what one request writes; a larger file is uploaded in parts
PARTS_AT_ONCE: Final = 2
PAGE: Final = 1000  # names in the answer to one request

_NO_SUCH_RANGE: Final = 416
_SPARK: Final = {"s3": "s3a"}  # where Spark calls a scheme otherwise


@dataclass(frozen=True, slots=True)
class ObjectStore(Store):
    """The objects of a bucket whose keys begin with `prefix`, as files.

    The value holds no connection: each process makes a client of its own when it first needs it.
    Credentials that are not among the bucket's options, a process finds where it runs.
    """

    bucket: Bucket
    prefix: str = ""

    def create(self, name: str, data: bytes) -> None:
        """As `Store` says. S3 also answers "conflict" (409) while another create is under way, of
        which nothing may stay: so a name is taken only if a file is seen there."""
        lost: StoreError | None = None  # hides the answer to an attempt
        trouble: OSError
        for _ in attempts():
            try:
                with condition(self.bucket, self.address(name)) as client:
                    client.put(self._key(name), data, mode="create", use_multipart=False)
                return
            except FileExistsError:
                found = self._found(name, lost)
                if lost is not None and found == data:
                    return
                if found is not None:
                    raise
                trouble = _busy(self.address(name))
            except StoreError as error:
                trouble = error
                if not may_pass(error.status):
                    break
                lost = error if error.sent else lost
        raise trouble if lost is None else _unknown(lost)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        """What is large is uploaded in parts meanwhile.

        Of a process that dies, the store keeps the parts, which no list shows, until a rule of the
        bucket deletes them.
        """
        address = self.address(name)
        with request(self.bucket, "puts", address) as client:
            upload = _Upload(client, self._key(name), address)
        try:
            yield cast(BinaryIO, upload)
        except BaseException:
            upload.abort()
            raise
        upload.finish()
        count("puts", upload.requests - 1)

    def replace(self, name: str, data: bytes) -> None:
        with self._request("puts", name) as client:
            client.put(self._key(name), data, use_multipart=False)

    def read(self, name: str) -> bytes:
        with self._request("gets", name) as client:
            return bytes(client.get(self._key(name)).bytes())

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            self._head(name)
            return b""
        try:
            with self._request("gets", name) as client:
                return bytes(client.get_range(self._key(name), start=start, length=length))
        except StoreError as error:
            if error.status == _NO_SUCH_RANGE or (
                error.status is None and error.sent and start >= self._head(name)["size"]
            ):  # emulators of Azure answer with what the client takes for nonsense
                return b""
            raise

    def exists(self, name: str) -> bool:
        try:
            self._head(name)
        except FileNotFoundError:
            return False
        return True

    def list_files(self, directory: str) -> list[str]:
        names, start = [], len(self._below(directory))
        with self._request("lists", directory) as client:
            for page, found in enumerate(client.list(self._key(directory), chunk_size=PAGE)):
                names += [entry["path"][start:] for entry in found]
                count("lists", 1 if page else 0)
        return sorted(
            f"{directory}/{name}" if directory else name for name in filter(_shown, names)
        )

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), self._request("deletes", name) as client:
            client.delete(self._key(name))

    def within(self, directory: str) -> Self:
        return replace(self, prefix=self._key(directory))

    def address(self, name: str = "") -> str:
        return "/".join(filter(None, (str(self.bucket), self._key(name))))

    def url(self, name: str = "") -> str:
        scheme = self.bucket.scheme
        return _SPARK.get(scheme, scheme) + self.address(name).removeprefix(scheme)

    # -- better than the default ---------------------------------------------------------------

    def names(self, directory: str) -> list[str]:
        """It looks into this directory alone."""
        start = len(self._below(directory))
        with self._request("lists", directory) as client:
            found = client.list_with_delimiter(self._key(directory))
        keys = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        count("lists", len(keys) // PAGE)
        return sorted(filter(_shown, (key[start:].rstrip("/") for key in keys)))

    def chunks(self, name: str) -> Iterator[memoryview]:
        """Each piece is a request of its own, so whoever reads may take time over it."""
        start, data = 0, b""
        while len(data) == PIECE or not start:
            data = self.read_range(name, start, PIECE)
            if data:
                yield memoryview(data)
            start += PIECE

    def modified(self, name: str) -> float:
        return float(self._head(name)["last_modified"].timestamp())

    def _head(self, name: str) -> Any:
        with self._request("gets", name) as client:
            return client.head(self._key(name))

    def _found(self, name: str, lost: StoreError | None) -> bytes | None:
        """A file that may be there; an answer is `lost` until this has succeeded."""
        try:
            return self.read(name)
        except FileNotFoundError:
            return None
        except StoreError:
            if lost is None:
                raise
            raise _unknown(lost) from None

    def _request(self, kind: Kind, name: str) -> AbstractContextManager[Client]:
        return request(self.bucket, kind, self.address(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix and name else self.prefix or name

    def _below(self, directory: str) -> str:
        """What keys of files in a directory begin with."""
        key = self._key(directory)
        return f"{key}/" if key else ""


class _Upload(io.RawIOBase):
    """A file that is being written: it appears when it is finished."""

    def __init__(self, client: Client, key: str, address: str) -> None:
        from obstore import open_writer

        self._writer = open_writer(client, key, buffer_size=PART, max_concurrency=PARTS_AT_ONCE)
        self._address = address
        self._bytes = 0

    @property
    def requests(self) -> int:
        """How many it takes to upload it: in parts, one each, one before and one after."""
        return 1 if self._bytes < PART else 2 + -(-self._bytes // PART)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        with errors_of(self._address):
            self._writer.write(data if isinstance(data, bytes) else bytes(view))  # it keeps them
        self._bytes += view.nbytes
        return view.nbytes

    def finish(self) -> None:
        with errors_of(self._address):
            self._writer.close()

    def abort(self) -> None:
        with suppress(OSError), errors_of(self._address):
            self._writer.__exit__(OSError, None, None)


def _shown(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))


def _busy(address: str) -> StoreError:
    return StoreError(
        errno.EIO, f"{address}: others go on creating it at the same time; start again", 409
    )


def _unknown(lost: StoreError) -> UnknownOutcomeError:
    number, reason = lost.args[:2]
    return UnknownOutcomeError(number, f"{reason}; it may be there nevertheless", lost.status)
