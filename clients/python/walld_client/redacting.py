"""`redact`: what a text becomes before it leaves the process.

Owns: giving it every text of a value, and saying what is wrong with what it gives back. Refuses:
which values those are (`reply.py`, `endings.py`, `appending.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from walld_client import opaque

__all__ = ["Redact", "checked", "redacted", "redacted_json"]

Redact = Callable[[str], str]


def checked(redact: Redact | None) -> Redact | None:
    """The same, but TypeError where it gives back no text."""
    if redact is None:
        return None

    def call(text: str) -> str:
        said: object = redact(text)
        if not isinstance(said, str):
            raise TypeError(f"redact must give back a str, got {type(said).__name__}")
        return said

    return call


def redacted(value: Any, redact: Redact) -> Any:
    """`value` with every text in it changed by `redact`; keys stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redacted(one, redact) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(one, redact) for one in value]
    return value


def redacted_json(text: str, redact: Redact) -> str:
    """JSON text: each text in it as it is meant, then all of it as it is sent.

    A key with a newline is not found in its JSON, and `"password": "..."` in no text of its own.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text)  # not whole, or none
    inner = redacted(value, redact)
    if inner != value:
        text = opaque.json_bytes(inner).decode("utf-8", "surrogatepass")
    return redact(text)
