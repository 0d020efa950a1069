"""Packs values of a snapshot as bytes, whatever an entry may hold.

Owns: one value to bytes and back. Refuses: which values there are (`snapshot.py`, `journal.py`).

MessagePack holds neither half a character nor a number of more than 64 bits, and entries do: a file
name that is no UTF-8, half an emoji. What holds one is JSON, whose escapes hold all. The first byte
tells: that of an array in MessagePack is none that JSON begins with.
"""

from __future__ import annotations

import json
from typing import Final, Generic, TypeVar

import msgspec

from walld.errors import FormatError

__all__ = ["Packing"]

T = TypeVar("T")
_JSON: Final = b"["


class Packing(Generic[T]):
    """Values of one kind, which is an array in both."""

    def __init__(self, kind: type[T], what: str) -> None:
        """what: its name in an error."""
        self._kind = kind
        self._what = what
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, value: T) -> bytes:
        """The bytes of a value."""
        try:
            return self._encoder.encode(value)
        except (UnicodeEncodeError, OverflowError):
            plain = msgspec.to_builtins(value)  # bytes are base64
            return json.dumps(plain, separators=(",", ":")).encode("ascii")

    def decode(self, encoded: bytes) -> T:
        """Raises FormatError for any other bytes."""
        try:
            if encoded.startswith(_JSON):
                return msgspec.convert(json.loads(encoded), self._kind)
            return self._decoder.decode(encoded)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            size = len(encoded)
            raise FormatError(f"{self._what} of {size} bytes cannot be read: {error}") from None
