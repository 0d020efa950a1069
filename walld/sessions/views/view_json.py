"""Writes a view as JSON, once, in bounded memory.

Owns: its bytes. Refuses: what the view is, what becomes of one that is too long.

`json.dumps` of all of it has the whole text as a list of pieces, as one string and as bytes at a
time, each six times as long as a text of escapes. So it is called for small parts alone.
"""

from __future__ import annotations

import json
from typing import Final

__all__ = ["TooLong", "view_json"]

_SMALL_FIELDS: Final = 32
_SMALL_CHARS: Final = 64 * 1024
"""A longer text is written in pieces."""
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_PLAIN: Final = (int, float, bool, type(None))


class TooLong(Exception):
    """It has more bytes than it may."""


def view_json(value: object, bytes_max: int) -> bytearray:
    """The bytes of `json.dumps` without spaces, all of them ASCII. TooLong."""
    made = bytearray()
    _write(made, value, bytes_max)
    return made


def _write(made: bytearray, value: object, bytes_max: int) -> None:
    if isinstance(value, str) and len(value) > _SMALL_CHARS:
        made += b'"'
        for start in range(0, len(value), _SMALL_CHARS):
            made += _encode(value[start : start + _SMALL_CHARS])[1:-1].encode("ascii")
            _check(made, bytes_max)
        made += b'"'
    elif _is_small(value):
        made += _encode(value).encode("ascii")
    elif isinstance(value, dict):
        made += b"{"
        for at, (name, inner) in enumerate(value.items()):
            # As the name of a field alone it is written: a number, say, as its text.
            made += b"," * (at > 0) + _encode({name: 0}).encode("ascii")[1:-2]
            _write(made, inner, bytes_max)
        made += b"}"
    else:
        assert isinstance(value, (list, tuple)), type(value)
        made += b"["
        for at, inner in enumerate(value):
            made += b"," * (at > 0)
            _write(made, inner, bytes_max)
        made += b"]"
    _check(made, bytes_max)


def _is_small(value: object) -> bool:
    """To be written by one call: no list or object but of a few short things."""
    if isinstance(value, str):
        return True
    if not isinstance(value, (dict, list, tuple)):
        return True
    if len(value) > _SMALL_FIELDS:
        return False
    return all(
        isinstance(one, _PLAIN) or (isinstance(one, str) and len(one) <= _SMALL_CHARS // 16)
        for one in (value.values() if isinstance(value, dict) else value)
    )


def _check(made: bytearray, bytes_max: int) -> None:
    if len(made) > bytes_max:
        raise TooLong
