"""The workspace as the ledger last knew it, against what it is now.

Owns: `Compared`, and which difference counts. Refuses: looking at any file.

Invariants: what was not looked at is never called the same. A workspace that the agent itself wrote
to may have become dirty; a file somebody else changed is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from walld.sessions.events import Event, check_payload

__all__ = ["Compared", "compare", "fingerprint_then"]


class Compared(NamedTuple):
    """verdict: same | changed | not_compared. changed: what differs, files as "file <path>"."""

    verdict: str
    changed: list[str]
    then: dict[str, Any] | None
    now: dict[str, Any] | None


def fingerprint_then(events: Sequence[Event]) -> dict[str, Any] | None:
    """That of the last lifecycle event that has one, and the files that tools wrote since.

    None where nothing is known of the workspace.
    """
    found: dict[str, Any] | None = None
    files: dict[str, Any] = {}
    for event in events:
        if event.type not in ("lifecycle", "tool_finished"):
            continue
        if check_payload(event.type, event.payload) is not None:
            continue
        if event.type == "tool_finished":
            files |= event.payload.get("files") or {}
        elif event.payload.get("fingerprint"):
            found = event.payload["fingerprint"]
            known = found.get("files")
            files |= known if isinstance(known, dict) else {}
    if found is None and not files:
        return None
    return {**(found or {}), "files": files}


def compare(
    then: dict[str, Any] | None, now: Mapping[str, Any] | None, has_written: bool
) -> Compared:
    """has_written: the agent may have made the workspace dirty itself."""
    now = None if now is None else dict(now)
    if then is None or now is None:
        return Compared("not_compared", [], then, now)
    changed = []
    if "head" in then and then["head"] != now.get("head"):
        changed.append(f"head (then {then['head']}, now {now.get('head')})")
    if then.get("dirty") is False and now.get("dirty") is True and not has_written:
        changed.append("dirty (then false, now true)")
    files = now.get("files")
    files = files if isinstance(files, dict) else {}
    changed += [
        f"file {name}"
        for name, sha256 in then["files"].items()
        if name not in files or files[name] != sha256
    ]
    return Compared("changed" if changed else "same", changed, then, now)
