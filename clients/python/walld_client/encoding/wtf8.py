"""Text with lone surrogates: bytes of the wire to str, and str to valid UTF-8.

Owns: joining surrogate halves, and replacing those that stay alone. Refuses: what the text means.

Vendors split an emoji over two chunks; each half arrives as a lone surrogate and is kept as such
(`surrogatepass`). Where the halves meet they are one character again. A half that stays alone is
kept as long as the text stays in Python and is U+FFFD in JSON and for a provider.
"""

from __future__ import annotations

import base64
import codecs
import datetime
import math
import re

import msgspec

__all__ = ["decode", "join", "jsonable", "scrub"]

DEPTH_MAX = 200
"""Nesting that `jsonable` follows; deeper values become a sentence that says so."""

_HALF = re.compile("[\ud800-\udfff]")


def _pass_or_replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """A half character as it is; any other byte that is no UTF-8 as U+FFFD."""
    try:
        return codecs.lookup_error("surrogatepass")(error)
    except UnicodeError:
        return codecs.lookup_error("replace")(error)


codecs.register_error("walld.wtf8", _pass_or_replace)


def decode(text: bytes) -> str:
    """Bytes of the wire as str, halves joined. Never raises."""
    return join(text.decode("utf-8", "walld.wtf8"))


def join(text: str) -> str:
    """The same text with every two halves that meet made one character."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def scrub(text: str) -> str:
    """The same text for JSON or a provider: halves joined, those left alone as U+FFFD."""
    return text if text.isascii() else _HALF.sub("\N{REPLACEMENT CHARACTER}", join(text))


def jsonable(value: object, depth: int = 0) -> object:
    """`value` in nothing but what every JSON reader takes."""
    if isinstance(value, str):
        return scrub(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth >= DEPTH_MAX:
        return f"(nested deeper than {DEPTH_MAX})"
    if isinstance(value, dict):
        return {
            scrub(key if isinstance(key, str) else str(key)): jsonable(one, depth + 1)
            for key, one in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(one, depth + 1) for one in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, msgspec.msgpack.Ext):
        return {"code": value.code, "data": jsonable(value.data, depth + 1)}
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return scrub(str(value))
