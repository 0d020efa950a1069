"""Checks of the kinds of what a program gives, where another kind would do something else.

Owns: TypeErrors that name the argument and what it got. Refuses: ids (`ids.py`), what an entry may
hold (the daemon says).

A str is a list of letters to Python, an int is an open file, a dict is an empty list: taken as they
come they would be done, and none of it is what was meant.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "checked_bool",
    "checked_files",
    "checked_int",
    "checked_list",
    "checked_seconds",
    "checked_seq",
    "checked_source",
    "checked_text",
]

_ONE = (str, bytes, bytearray, memoryview, Mapping, os.PathLike)


def checked_bool(value: bool, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def checked_seq(value: int | None, name: str) -> int | None:
    """A seq, or None."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise _wrong(name, "an int or None", value)
    return value


def checked_int(value: int, name: str) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "an int", value)
    return value


def checked_seconds(value: float, name: str) -> float:
    """How long to wait: a number of seconds, and an end to them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, "a number of seconds", value)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number of seconds, got {value}")
    return value


def checked_text(value: str | None, name: str) -> str | None:
    """A text, or None."""
    if value is not None and not isinstance(value, str):
        raise _wrong(name, "a str or None", value)
    return value


def checked_source(value: Any, name: str) -> Any:
    """Bytes or a path: never the number of an open file."""
    if not isinstance(value, (bytes, bytearray, memoryview, str, os.PathLike)):
        raise _wrong(name, "bytes or a path", value)
    return value


def checked_list(value: Iterable[Any], name: str, of: str, *kinds: type) -> list[Any]:
    """Several, each of those kinds, and not one that Python would take apart."""
    if isinstance(value, _ONE) or not isinstance(value, Iterable):
        raise _wrong(name, f"a list of {of}", value)
    listed = list(value)
    for one in listed:
        if not isinstance(one, kinds):
            raise _wrong(name, f"a list of {of}", one, " in it")
    return listed


def checked_files(value: Iterable[Any]) -> list[str | os.PathLike[str]]:
    """Paths of files: one that is given alone would be a path for each letter."""
    return checked_list(value, "files", "paths", str, os.PathLike)


def _wrong(name: str, wanted: str, got: object, where: str = "") -> TypeError:
    return TypeError(f"{name} must be {wanted}, got {type(got).__name__}{where}")
