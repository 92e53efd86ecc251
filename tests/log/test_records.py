"""A record is what was written, or a DamagedFileError that names the file."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from godwit.errors import DamagedFileError
from godwit.log.records import FORMAT, decode, decode_as, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
BODIES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(BODIES)
def test_a_body_comes_back(body: Any) -> None:
    assert decode("file", encode("manifest", body), "manifest") == body


@given(BODIES, st.data())
def test_every_truncation_is_noticed(body: Any, data: st.DataObject) -> None:
    record = encode("manifest", body)
    cut = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(DamagedFileError, match=r"^some/file: "):
        decode("some/file", record[:cut], "manifest")


@given(BODIES, st.data())
def test_every_flipped_bit_is_noticed(body: Any, data: st.DataObject) -> None:
    record = bytearray(encode("manifest", body))
    record[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedFileError, match=r"^some/file: "):
        decode("some/file", bytes(record), "manifest")


@given(BODIES, st.binary(min_size=1))
def test_appended_bytes_are_noticed(body: Any, more: bytes) -> None:
    with pytest.raises(DamagedFileError, match="damaged"):
        decode("file", encode("manifest", body) + more, "manifest")


@given(st.binary() | st.text().map(str.encode) | BODIES.map(lambda body: json.dumps(body).encode()))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match="not written by Godwit"):
        decode("file", data, "manifest")


def test_deeply_nested_foreign_json_is_refused() -> None:
    with pytest.raises(DamagedFileError, match="not written by Godwit"):
        decode("file", b"[" * 100_000, "manifest")


def test_the_reason_says_what_is_wrong_and_what_to_do() -> None:
    record = encode("manifest", {"epoch": 1})
    newer = record.replace(b'"format": 1', f'"format": {FORMAT + 1}'.encode())
    for data, reason in {
        newer: "has format 2, .* use the version that wrote it",
        record[:-4]: "truncated to 8 of 12 bytes; restore",
        record.replace(b"epoch", b"epocH"): "checksum does not match; restore",
        encode("intent", {}): "holds 'intent', not 'manifest'",
    }.items():
        with pytest.raises(DamagedFileError, match=reason) as caught:
            decode("the/file", data, "manifest")
        assert caught.value.path == "the/file"


def test_a_body_of_another_shape_is_a_damaged_file() -> None:
    with pytest.raises(DamagedFileError, match=r"not a manifest that Godwit wrote \(KeyError"):
        decode_as("file", encode("manifest", {}), "manifest", lambda body: body["epoch"])
