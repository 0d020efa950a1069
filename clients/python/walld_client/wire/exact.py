"""Takes texts and numbers of the program's own subclasses as plain ones.

Owns: which values those are, and what goes on the wire for one. Refuses: any other value
(`value_encoding.py`).

Templates, scrapers and number libraries hand out subclasses of str and float. They pass every check
for a str, and msgspec encodes none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["KINDS", "exact"]

_PLAIN: Final[dict[type, Callable[[Any], object]]] = {
    str: str.__str__,
    int: int.__index__,
    float: float.__float__,
    bytes: bytes.__bytes__,
}
KINDS: Final = tuple(_PLAIN)
"""What a subclass is taken for; not by what it says of itself."""


def exact(value: Any) -> Any:
    """The same text, number or bytes, of no subclass. TypeError for what is none."""
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind):
            return plain(value)
    raise TypeError(f"{type(value).__name__} is no text, number or bytes")
