"""Authenticated encryption of short texts: AES-256-GCM, the name of the text as associated data.

`cryptography` is imported where it is used: a master that cannot open its store reports that without it.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field

KEY_BYTES = 32
"""AES-256."""

NONCE_BYTES = 12
"""What GCM takes without hashing. A key seals a few dozen texts in its life: random nonces do not meet."""

FINGERPRINT_LETTERS = 16
"""Enough to distinguish keys; too few to reveal anything about a key."""


class WrongKey(Exception):
    """The text was not sealed by this key under this name, or was changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of 256 bits."""

    value: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Key:
        return cls(value=os.urandom(KEY_BYTES))

    @classmethod
    def from_text(cls, text: str) -> Key:
        """64 hexadecimal digits, with white space around. Raises `ValueError`, which does not hold the text."""
        try:
            value = bytes.fromhex(text.strip())
        except ValueError:
            value = b""
        if len(value) != KEY_BYTES:
            raise ValueError(f"is not {2 * KEY_BYTES} hexadecimal digits")
        return cls(value=value)

    @property
    def text(self) -> str:
        return self.value.hex()

    @property
    def fingerprint(self) -> str:
        """Names the key in messages."""
        return hashlib.sha256(b"resolute sealing key " + self.value).hexdigest()[:FINGERPRINT_LETTERS]

    def seal(self, name: str, text: str) -> str:
        """`text` under `name`, as base64."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(NONCE_BYTES)
        return base64.b64encode(nonce + AESGCM(self.value).encrypt(nonce, text.encode(), name.encode())).decode()

    def open(self, name: str, sealed: str) -> str:
        """What was sealed. Raises `WrongKey`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = base64.b64decode(sealed, validate=True)
            return AESGCM(self.value).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise WrongKey(f"'{name}' cannot be opened by key {self.fingerprint}") from error
