"""The artifacts that an event names.

Owns: where in a payload one may stand. Refuses: their bytes, and whether they are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["artifacts_of", "whole_text"]

_DIGEST: Final = re.compile("[0-9a-f]{64}")


def artifacts_of(type: str, payload: object) -> Iterator[tuple[str, Any]]:  # noqa: A002
    """(SHA-256 in hex, size as it is told) of itself, of what a turn was submitted with, and of
    what stands for content that was too long for an event. payload: any JSON; it may be asked
    before it is known to be an object.
    """
    named: list[object] = [payload] if type == "artifact" else []
    attached = payload.get("attachments") if isinstance(payload, dict) else None
    if type == "turn_submitted" and isinstance(attached, list):
        named += attached
    walk: list[object] = [payload]
    while walk:
        value = walk.pop()
        if isinstance(value, dict):
            if "_artifact" in value:
                named.append(value["_artifact"])
            walk += value.values()
        elif isinstance(value, list):
            walk += value
    for one in named:
        if isinstance(one, dict):
            digest = one.get("sha256")
            if isinstance(digest, str) and _DIGEST.fullmatch(digest):
                size = one.get("size")
                yield digest, size if isinstance(size, int) else None


def whole_text(payload: dict[str, Any], name: str) -> object:
    """A field that is a text, or what names all of it where it is only the beginning."""
    named = payload.get("_artifact")
    return {"_artifact": named} if isinstance(named, dict) else payload.get(name, "")
