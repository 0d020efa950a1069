"""Encodes the application's values: info, meta, payload, detail, arguments, results.

Owns: the promise that any value can be sent. Refuses: raising. What msgpack or JSON cannot hold is
sent as its repr, a lone surrogate in a str as U+FFFD, and what is too long as its beginning. A
mapping, a text or a number of a class of the program's own is what it is (`wire/exact.py`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from walld_client.encoding.cycle_check import CycleFound, Trail, taken_apart
from walld_client.limits import INFO_BYTES_MAX
from walld_client.wire.exact import KINDS, exact

__all__ = [
    "brief",
    "builtin",
    "clean",
    "cut",
    "held",
    "info_bytes",
    "json_bytes",
    "kind_of",
    "payload_bytes",
    "shown",
    "text_bytes",
    "value_bytes",
]

_DEPTH_MAX = 64
_REPR_CHARS_MAX = 1024
_PARTS = (Mapping, list, tuple, set, frozenset)
_PACKED = (bytes, bytearray, datetime)
"""What msgpack has forms of its own for, and JSON none."""


def shown(value: object) -> str:
    """Its repr, whatever that does."""
    try:
        return repr(value)
    except Exception:
        return kind_of(value)


def brief(value: object) -> str:
    """What a value looks like, in a few letters."""
    try:
        return reprlib.repr(value)
    except Exception:  # an int of more digits than Python writes, a repr of the program's own
        return kind_of(value)


def kind_of(value: object) -> str:
    """What stands for a part that is not taken apart. Not its repr, which takes it apart."""
    return f"<{type(value).__name__}>"


def held(value: object) -> object:
    """What is encoded for a value of a class that msgspec does not know."""
    if isinstance(value, KINDS):
        return exact(value)
    return dict(value) if isinstance(value, Mapping) else shown(value)


_msgpack = msgspec.msgpack.Encoder(enc_hook=held)
_json = msgspec.json.Encoder(enc_hook=held)


def builtin(value: object) -> object:
    """A dict, a list, a text or a number that is encoded as the value is."""
    try:
        return msgspec.to_builtins(value, enc_hook=held, builtin_types=_PACKED)
    except Exception:
        return shown(value)


def clean(text: str, bytes_max: int) -> str:
    """`text` as msgpack can hold it: no lone surrogate, at most `bytes_max` bytes of UTF-8."""
    if type(text) is not str:
        text = exact(text) if isinstance(text, str) else shown(text)
    if len(text) * 3 <= bytes_max and text.isascii():
        return text
    safe = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return cut(safe.encode(), bytes_max).decode()


def text_bytes(text: str) -> bytes:
    """UTF-8 with lone surrogates passed through: halves of an emoji join up when it is read."""
    return text.encode("utf-8", "surrogatepass")


def cut(encoded: bytes, bytes_max: int) -> bytes:
    """The beginning of UTF-8 text, never ending inside a character."""
    if len(encoded) <= bytes_max:
        return encoded
    stop = bytes_max
    while stop and encoded[stop] & 0xC0 == 0x80:
        stop -= 1
    return encoded[:stop]


def json_bytes(value: object) -> bytes:
    """JSON text of a value; a str is taken to be JSON text already."""
    if isinstance(value, str):
        return text_bytes(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = shown(bytes(value))
    try:
        return _json.encode(value)
    except Exception:
        return _json.encode(_plain(value))


def payload_bytes(value: object, bytes_max: int) -> tuple[bytes, int]:
    """Msgpack of a value and 0, or of its encoding's beginning (as bin) and the true length.

    What is cut stays one msgpack value, so that a reader need not know that it was cut.
    """
    encoded, _ = _encoded(value)
    if len(encoded) <= bytes_max:
        return encoded, 0
    return _msgpack.encode(encoded[: bytes_max - 5]), len(encoded)


def info_bytes(value: dict[str, Any]) -> bytes | None:
    """Msgpack of `**info` or `**meta`; None where there is none."""
    return value_bytes(value) if value else None


def value_bytes(value: object) -> bytes:
    """Msgpack of any value; of one that is too long, what it looks like and how long it is."""
    encoded, plain = _encoded(value)
    if len(encoded) <= INFO_BYTES_MAX:
        return encoded
    start = clean(shown(plain)[:_REPR_CHARS_MAX], INFO_BYTES_MAX // 2)
    return _msgpack.encode({"truncated_from": len(encoded), "repr": start})


def _encoded(value: object) -> tuple[bytes, object]:
    """Msgpack, and what it is of: the value itself, or what was made of it."""
    try:
        return _msgpack.encode(value), value
    except Exception:
        # A lone surrogate, an int beyond 64 bits, a loop: take it apart.
        plain = _plain(value)
        return _msgpack.encode(plain), plain


def _plain(value: object) -> object:
    """`value` out of nothing but what msgpack and JSON hold."""
    return taken_apart(lambda trail: _apart(value, 0, trail))


def _apart(value: object, depth: int, trail: Trail) -> object:
    if isinstance(value, str):
        return clean(value, len(value) * 4 + 4)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else str(value)
    if not isinstance(value, _PARTS):
        return clean(shown(value)[:_REPR_CHARS_MAX], _REPR_CHARS_MAX * 4)
    if depth >= _DEPTH_MAX or not trail.enters(value):
        return kind_of(value)
    try:
        if isinstance(value, Mapping):
            return {str(_plain(k)): _apart(v, depth + 1, trail) for k, v in value.items()}
        return [_apart(item, depth + 1, trail) for item in value]
    except CycleFound:
        raise
    except Exception:
        return kind_of(value)
    finally:
        trail.leaves(value)
