"""Ids to file names: the path form that FORMAT.md makes normative. The daemon imports it.

Owns: the mapping, and the form of a name on a disk that does not look at case. Refuses: touching a
file system.

Invariants: the result is a single safe path component of at most 96 bytes; no two ids share one
(short of a SHA-256 collision in 160 bits): a hashed name starts with "h~", and an id never does,
because "~" is not in its alphabet. "." and ".." start with a dot, which stands only inside a name.
A folded name has no capital, and no two names share one: "@" is in no name before that.
"""

from __future__ import annotations

import re
from hashlib import sha256

__all__ = ["HASHED_PREFIX", "folded_name", "path_name"]

HASHED_PREFIX = "h~"
_capital = re.compile(r"[A-Z]")
_safe = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}")


def path_name(ident: str) -> str:
    """The file name of a session or stream id."""
    if _safe.fullmatch(ident):
        return ident
    return HASHED_PREFIX + sha256(ident.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def folded_name(name: str) -> str:
    """The same name on a disk that does not look at case: `Chat-1` is `@chat-1` there."""
    return _capital.sub(lambda found: "@" + found[0].lower(), name)
