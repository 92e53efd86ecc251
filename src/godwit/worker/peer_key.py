"""How keepers of one query know each other: a secret, and a certificate where Spark encrypts."""

import hashlib
import hmac
import os
import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Self

SIZE: Final = 32  # bytes, of secrets, challenges and proofs


@dataclass(frozen=True)
class PeerKey:
    """A secret of one start of a query, made by its driver. It travels as tasks do, and nowhere
    else.

    With a `certificate` and its `private` key (PEM), which all keepers share, connections are
    encrypted, and who has not got it cannot even begin one.

    >>> PeerKey.make()
    PeerKey(is_encrypted=False)
    """

    secret: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)
    private: str = field(default="", repr=False)

    @classmethod
    def make(cls, certificate: str = "", private: str = "") -> Self:
        return cls(secrets.token_bytes(SIZE), certificate, private)

    def __repr__(self) -> str:
        return f"PeerKey(is_encrypted={self.is_encrypted})"

    @property
    def is_encrypted(self) -> bool:
        return bool(self.certificate)

    def prove(self, role: bytes, *parts: bytes) -> bytes:
        """A proof that one knows the secret, for these parts of a conversation alone."""
        summed = b"".join(hashlib.sha256(part).digest() for part in parts)
        return hmac.digest(self.secret, role + summed, "sha256")

    def is_proof(self, proof: bytes, role: bytes, *parts: bytes) -> bool:
        return hmac.compare_digest(proof, self.prove(role, *parts))

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # nothing goes back unasked
        return context

    def _context(self, protocol: int) -> ssl.SSLContext:
        """Both sides show the one certificate, and trust it alone; names do not matter."""
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.certificate)
        with _in_memory(self.certificate + self.private) as path:
            context.load_cert_chain(path)
        return context

    def __getstate__(self) -> tuple[bytes, str, str]:
        return self.secret, self.certificate, self.private  # contexts stay in their process

    def __setstate__(self, state: tuple[bytes, str, str]) -> None:
        for name, value in zip(("secret", "certificate", "private"), state, strict=True):
            object.__setattr__(self, name, value)


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A path of a file that is on no disk."""
    descriptor = os.memfd_create("key")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
