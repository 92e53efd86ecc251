"""The clients of object stores, one for each bucket in a process, and what their errors mean."""

import errno
import os
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Literal, Self, TypeAlias

from godwit.errors import ConfigError
from godwit.model.store_requests import StoreRequests
from godwit.storage.store import StoreError

Client: TypeAlias = Any  # one of obstore's stores, which is imported when it is needed
Kind = Literal["puts", "gets", "lists", "deletes"]

RETRIES: Final = 10
SECONDS: Final = 60  # after which nothing is tried again
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0

_KINDS: Final[Mapping[str, str]] = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_ENDPOINT: Final[Mapping[str, str]] = {"s3": "endpoint", "gs": "base_url", "az": "endpoint"}
_ALWAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": {"conditional_put": "etag", "disable_bulk_delete": "true"},
    "gs": {},
    "az": {},
}
_CLIENT: Final[Mapping[str, Any]] = {
    "allow_http": True,  # where the endpoint says http://
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=30),  # until the answer begins, or goes on
    "timeout": timedelta(minutes=5),
}

# What is told of an error: its own text may repeat keys, signatures and signed addresses.
_STATUS: Final = re.compile(r"status(?: code)?: ([345]\d\d)")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_METADATA: Final = re.compile(r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal")
_ELSEWHERE: Final = re.compile(r"BareRedirect|without LOCATION")
_LATE: Final = re.compile(r"timed out|kind: Timeout|TimedOut")
_UNSENT: Final = re.compile(r"kind: Connect\b")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, which Azure calls a container, and how to reach it; `repr` hides the options.

    They are fields of obstore's `S3Config`, `GCSConfig` or `AzureConfig`.
    """

    scheme: str
    name: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls, scheme: str, name: str, endpoint: str | None, options: Mapping[str, object]
    ) -> Self:
        texts = {key: _text(value) for key, value in options.items()}
        if endpoint is not None:
            texts[_ENDPOINT[scheme]] = endpoint
        return cls(scheme, name, tuple(sorted(texts.items())))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- clients ---------------------------------------------------------------------------------------

_user: int | None = None


def client(bucket: Bucket, *, retrying: bool = True) -> Client:
    """The client of this process for a bucket; ConfigError if none can be made."""
    global _user
    if _user not in (None, os.getpid()):  # its threads do not survive a fork: it would wait forever
        raise ConfigError(
            f"{bucket}: this process was forked from one that had used an object store; start it "
            "by spawn or forkserver instead"
        )
    _user = os.getpid()
    return _client(bucket, RETRIES if retrying else 0)


@lru_cache(maxsize=64)
def _client(bucket: Bucket, retries: int) -> Client:
    try:
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise ConfigError(
            f"{bucket}: the package obstore, which reaches object stores, is missing here; run "
            "pip install 'godwit[cloud]', also where executors run"
        ) from None
    kind = _KINDS[bucket.scheme]
    retrying = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=SECONDS),
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_PAUSE),
            "max_backoff": timedelta(seconds=LONGEST_PAUSE),
            "base": 2,
        },
    }
    try:
        return getattr(obstore.store, kind)(
            bucket.name,
            config={**dict(bucket.options), **_ALWAYS[bucket.scheme]},
            client_options=_CLIENT,
            retry_config=retrying,
        )
    except obstore.exceptions.UnknownConfigurationKeyError as error:
        wrong = next(key for key, _ in bucket.options if f"'{key}'" in str(error))
        names = kind.replace("Store", "Config")
        raise ConfigError(
            f"{bucket}: there is no option '{wrong}'; obstore's {names} has those that there are"
        ) from None
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        raise ConfigError(f"{bucket}: {_why_none(str(error))}") from None


def _why_none(text: str) -> str:
    if "Account must be specified" in text:
        return "name the storage account, by AZURE_STORAGE_ACCOUNT_NAME or account_name="
    return (
        "its options and the environment make no client; check the endpoint, the region and the "
        "form of the credentials"
    )


# -- requests --------------------------------------------------------------------------------------

_counts: Final[dict[Kind, int]] = {"puts": 0, "gets": 0, "lists": 0, "deletes": 0}
_counting: Final = threading.Lock()


def count(kind: Kind, requests: int = 1) -> None:
    with _counting:
        _counts[kind] += requests


def requests_made() -> StoreRequests:
    """The requests of this process to all object stores so far, without repetitions that the client
    makes by itself. Subtract an earlier answer to have those since."""
    with _counting:
        return StoreRequests(**_counts)


@contextmanager
def request(bucket: Bucket, kind: Kind, address: str) -> Iterator[Client]:
    """A client to make one request with; it is tried again for a minute when it fails.

    It raises FileNotFoundError or StoreError, with nothing secret in it.
    """
    made = client(bucket)
    count(kind)
    with errors_of(address):
        yield made


@contextmanager
def condition(bucket: Bucket, address: str) -> Iterator[Client]:
    """A client to make one conditional write with, which is sent once.

    FileExistsError says that the condition was not met, or that another write was under way.
    """
    made = client(bucket, retrying=False)
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    count("puts")
    with errors_of(address):
        try:
            yield made
            return
        except (AlreadyExistsError, PreconditionError):
            pass
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), address)


def attempts() -> Iterator[None]:
    """Comes back as often as something is to be tried, after longer and longer pauses."""
    end = time.monotonic() + SECONDS
    for number in range(RETRIES):
        yield
        pause = min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        if time.monotonic() + pause > end:
            return
        time.sleep(pause)
    yield


# -- errors ----------------------------------------------------------------------------------------


@contextmanager
def errors_of(address: str) -> Iterator[None]:
    """FileNotFoundError or StoreError in place of obstore's errors, with nothing secret in them."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise _translated(address, error) from None


def may_pass(status: int | None) -> bool:
    """Could the same request succeed later? None is a request without an answer."""
    return status is None or status in (408, 429) or (status >= 500 and status != 501)


def _translated(address: str, error: Exception) -> OSError:
    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else None
    code = match[1] if (match := _CODE.search(text)) else ""
    if code in _NO_BUCKET:
        return FileNotFoundError(errno.ENOENT, "there is no such bucket; make it first", address)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), address)
    if _METADATA.search(text):
        return StoreError(
            errno.EACCES,
            f"{address}: no credentials were found; set them in the environment of this process, "
            "or give its host a role",
            sent=False,
        )
    number, reason = _reason(text, status, " ".join(filter(None, (str(status or ""), code))))
    return StoreError(number, f"{address}: {reason}", status, sent=not _UNSENT.search(text))


def _reason(text: str, status: int | None, said: str) -> tuple[int, str]:
    if status in (401, 403):
        return errno.EACCES, (
            f"access is denied ({said}); use credentials that may read, write, list and delete "
            "there, and that have not expired"
        )
    if _ELSEWHERE.search(text) or (status is not None and status < 400):
        return errno.EIO, "the bucket is in another region; name it, by AWS_REGION or region="
    if status is not None and may_pass(status):
        return errno.EIO, f"the server went on answering {said}; start again when it is well"
    if status is not None:
        return errno.EIO, f"the server answered {said}; check the endpoint and the bucket's name"
    if _LATE.search(text):
        return errno.EIO, "no answer came in time; check the network, and start again"
    if _UNSENT.search(text):
        return errno.EIO, "the server cannot be reached; check the endpoint and the network"
    return errno.EIO, "the request failed; check the endpoint and the network, and start again"
