"""Checks ids and makes new ones.

Owns: what an id may be, and what is taken for one. Refuses: paths (`paths.py`), meaning.

A wrong id is the one thing a sending call raises for: it would hide a reply for ever, and it is
the program's mistake, not the daemon's.
"""

from __future__ import annotations

import base64
import os
import time

import msgspec
from walld_client.encoding.value_encoding import brief
from walld_client.limits import ID_BYTES_MAX
from walld_client.wire.exact import exact

__all__ = ["Entry", "checked_id", "id_in", "id_of", "new_entry_id", "new_stream_id"]


class Entry(msgspec.Struct, frozen=True):
    """Where an entry stands in its session: taken wherever its id is. is_new: False where it was
    there already.
    """

    id: str
    seq: int
    is_new: bool = True


def id_of(given: str | Entry) -> str:
    """The id that was given, or that of the entry."""
    return given.id if isinstance(given, Entry) else given


def id_in(given: str | Entry, field: str) -> str:
    """The same. Raises ValueError as `checked_id`."""
    return checked_id(id_of(given), field)


def checked_id(id: str, field: str) -> str:  # noqa: A002 - it is one
    """`id`, as a plain str. Raises ValueError naming the field, what it got and the limit."""
    if not isinstance(id, str):
        raise ValueError(f"{field} must be a str, got {type(id).__name__} {brief(id)}")
    try:
        length = len(id) if id.isascii() else len(id.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{field} holds a lone surrogate at {_lone(id)}, no id may") from None
    if not 1 <= length <= ID_BYTES_MAX:
        raise ValueError(f"{field} is {length} bytes of UTF-8, must be 1 to {ID_BYTES_MAX}")
    return id if type(id) is str else exact(id)


def new_stream_id() -> str:
    """32 hex digits: 12 of wall clock in milliseconds, so that ids sort by age, then random."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def new_entry_id() -> str:
    """16 characters of a-z and 2-7: enough chance that no session draws one twice."""
    return base64.b32encode(os.urandom(10)).decode().lower()


def _lone(text: str) -> int:
    return next(i for i, char in enumerate(text) if 0xD800 <= ord(char) <= 0xDFFF)
