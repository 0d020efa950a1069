"""Applies `redact` to every text before it leaves the process.

Owns: giving it every text of a value, and saying what is wrong with what it gives back. Refuses:
which values those are (`reply.py`, `terminal_events.py`, `append_steps.py`), which texts of an
entry are names (`entry_names.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from walld_client.encoding import value_encoding
from walld_client.encoding.cycle_check import Trail, taken_apart
from walld_client.encoding.entry_names import ARTIFACT, NAMED, Names
from walld_client.wire.exact import exact

__all__ = ["Redact", "checked", "redacted", "redacted_json"]

Redact = Callable[[str], str]
_DEPTH_MAX = 200
_LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?')
"""A text in JSON, and the colon behind it if it is a key."""
_NO_KEYS = (NAMED, "[]", "*")
_NONE: Names = {}
_PARTS = (Mapping, list, tuple, set, frozenset)
_NO_TEXT = (int, float, bytes, bytearray, memoryview, date, time, timedelta, Decimal, UUID)


def checked(redact: Redact | None) -> Redact | None:
    """The same, but given plain texts, and TypeError where it gives back none."""
    if redact is None:
        return None

    def call(text: str) -> str:
        is_own = isinstance(text, str) and type(text) is not str
        said: object = redact(exact(text) if is_own else text)
        if not isinstance(said, str):
            raise TypeError(f"redact must give back a str, got {type(said).__name__}")
        return said

    return call


def redacted(value: Any, redact: Redact, names: Names | None = None) -> Any:
    """`value` with every text in it changed by `redact`; keys stay.

    Also what an object of another class is sent as: its fields, or its repr. What nests deeper
    than an entry may is its class. names: of a session's entry, the texts in it that stay.
    """
    return taken_apart(lambda trail: _redacted(value, redact, 0, trail, names))


def _redacted(value: Any, redact: Redact, depth: int, trail: Trail, names: Names | None) -> Any:
    if isinstance(value, str):
        return exact(value) if names and NAMED in names else redact(exact(value))
    if value is None or isinstance(value, _NO_TEXT):
        return value
    if not isinstance(value, _PARTS):
        return _redacted(value_encoding.builtin(value), redact, depth + 1, trail, names)
    if depth >= _DEPTH_MAX or not trail.enters(value):
        return value_encoding.kind_of(value)
    try:
        if isinstance(value, Mapping):  # loops, for in Python 3.11 a comprehension is a call more
            fields = {}
            for key, one in value.items():
                inner = None if names is None else _under(key, names)
                fields[key] = _redacted(one, redact, depth + 1, trail, inner)
            return fields
        inner = None if names is None else names.get("[]", _NONE)
        listed = []
        for one in value:
            listed.append(_redacted(one, redact, depth + 1, trail, inner))  # noqa: PERF401
        return listed
    finally:
        trail.leaves(value)


def _under(key: object, names: Names) -> Names:
    """The names in what a key has."""
    if key == "_artifact":
        return ARTIFACT
    if not isinstance(key, str) or key in _NO_KEYS:
        return names.get("*", _NONE)
    return names.get(key) or names.get("*", _NONE)


def redacted_json(text: str, redact: Redact) -> str:
    """JSON text: each text in it as it is meant, then all of it as it is sent.

    A key with a newline is not found in its JSON, and `"password": "..."` in no text of its own.
    Keys stay, and numbers as they are written; it may nest as deep as it likes.
    """
    try:
        json.loads(text)
    except ValueError:
        return redact(text)  # not whole, or none
    except RecursionError:
        pass

    def changed(found: re.Match[str]) -> str:
        literal, colon = found[0], found[1]
        if colon is not None:
            return literal
        try:
            meant: str = json.loads(literal)
        except ValueError:  # what nests too deep to be read may be no JSON
            return literal
        said = redact(meant)
        return literal if said == meant else _literal(said)

    return redact(_LITERAL.sub(changed, text))


def _literal(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    try:
        shown.encode()
    except UnicodeEncodeError:  # a lone surrogate: as its escape
        return json.dumps(text)
    return shown
