"""walld's own lines: what `walld session export` gives, or a session's file with its header.

Owns: an entry for each line. Refuses: the chain and the crc, which say what was in another session
and are made anew; opening files.

Ids, parents and times stay. The turns in it belong to nobody until somebody advances them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from walld.errors import FormatError
from walld.foreign.entries import Draft, Imported, message
from walld.foreign.lines import Line, at_ms, parsed, rest, text_or_none

__all__ = ["read"]

VERSION: Final = 1
_LINKS: Final = ("turn", "cause", "correlation", "key")


def read(lines: Iterable[str | bytes]) -> Imported:
    """FormatError where a later walld wrote it."""
    draft = Draft("walld")
    version = None
    for line in parsed(lines):
        if draft.damaged(line):
            continue
        assert line.value is not None
        if "walld" in line.value:
            version = _version(line.value["walld"])
        else:
            _take(draft, line, line.value)
    return draft.imported(version)


def _version(found: object) -> int:
    if found != VERSION:
        raise FormatError(f"walld: version {found!r:.40} of a session file, known is {VERSION}")
    return VERSION


def _take(draft: Draft, line: Line, value: dict[str, Any]) -> None:
    type_, payload, id_ = value.get("type"), value.get("payload"), text_or_none(value.get("id"))
    parent, at = text_or_none(value.get("parent")), at_ms(value.get("at"))
    if not isinstance(type_, str) or not isinstance(payload, dict) or id_ is None:
        draft.keep(line, "unknown_shape", id=id_, at_ms=at)
        return
    if parent is not None and parent not in draft:
        draft.keep(line, "unknown_parent", id=id_, at_ms=at)
        return
    target = payload.get("target")
    links = {name: text_or_none(value.get(name)) for name in _LINKS}
    if type_ == "leaf" and (target is None or (isinstance(target, str) and target in draft)):
        draft.move_leaf(line, target, id=id_, parent=parent, at_ms=at, more=payload, **links)
        return
    kept = payload.get("first_kept")
    is_there = isinstance(kept, str) and kept in draft
    if type_ == "compaction" and is_there and not draft.above(str(kept), parent or draft.leaf):
        # An older walld took it, and it kept nothing.
        said = [message("user", payload.get("summary"))]
        payload = {"replacement": said} | rest(payload, "first_kept")
    is_leaf = value.get("leaf") is not False
    is_root = parent is None and bool(draft.entries)
    draft.add(
        line, type_, payload, id=id_, parent=parent, root=is_root, at_ms=at, leaf=is_leaf, **links
    )
