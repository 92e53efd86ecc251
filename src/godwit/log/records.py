"""JSON records that notice damage: a header line with length and checksum, then the body."""

import json
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from godwit.errors import DamagedFileError

FORMAT = 1
T = TypeVar("T")


def encode(kind: str, body: Any) -> bytes:
    """The bytes of a record of `kind`.

    >>> print(encode("manifest", {"epoch": 7}).decode(), end="")
    {"godwit": "manifest", "format": 1, "bytes": 12, "crc": "1f55c92b"}
    {"epoch":7}
    """
    payload = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    return _header(kind, payload) + payload


def decode(path: str, data: bytes, kind: str) -> Any:
    """The body of the record in `data`, which was read from `path`.

    Anything but the exact bytes that `encode` made raises DamagedFileError, which names the file.
    """
    line, _, payload = data.partition(b"\n")
    header = _parse_header(path, line, kind)
    if isinstance(header["format"], int) and header["format"] > FORMAT:
        raise DamagedFileError(
            path,
            f"has format {header['format']}, this version of Godwit reads up to format {FORMAT}; "
            "use the version that wrote it, or a later one",
        )
    if header["godwit"] != kind:
        raise DamagedFileError(path, f"holds {header['godwit']!r}, not {kind!r}; {_repair(kind)}")
    if isinstance(header["bytes"], int) and len(payload) < header["bytes"]:
        raise DamagedFileError(
            path, f"is truncated to {len(payload)} of {header['bytes']} bytes; {_repair(kind)}"
        )
    if line + b"\n" != _header(kind, payload):
        raise DamagedFileError(path, f"is damaged: its checksum does not match; {_repair(kind)}")
    return json.loads(payload)


def decode_as(path: str, data: bytes, kind: str, build: Callable[[Any], T]) -> T:
    """The value that `build` makes of the body; a body of another shape is a damaged file."""
    body = decode(path, data, kind)
    try:
        return build(body)
    except (LookupError, TypeError, ValueError, AttributeError, zlib.error) as error:
        reason = f"is not a {kind} that Godwit wrote ({error!r}); {_repair(kind)}"
        raise DamagedFileError(path, reason) from error


def _header(kind: str, payload: bytes) -> bytes:
    fields = {
        "godwit": kind,
        "format": FORMAT,
        "bytes": len(payload),
        "crc": f"{zlib.crc32(payload):08x}",
    }
    return json.dumps(fields).encode() + b"\n"


def _parse_header(path: str, line: bytes, kind: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or not header.keys() >= {"godwit", "format", "bytes", "crc"}:
        raise DamagedFileError(path, f"is damaged, or was not written by Godwit; {_repair(kind)}")
    return header


def _repair(kind: str) -> str:
    restore = "restore the checkpoint from a backup"
    if kind == "checkpoint":  # it is of no epoch
        return restore
    return f"{restore}, or roll back to an epoch before this file"
