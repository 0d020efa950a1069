"""Compares the workspace with what the ledger last knew of it.

Owns: `Compared`, and which difference counts. Refuses: looking at any file.

Invariants: what was not looked at is never called the same: where a tree is dirty, every file that
differs from its commit has to be known then and now. What the agent itself may have written is no
change somebody else made, and not the same either unless its tools said the hash; where nobody
lists what differs it may be any file. Without git every file is listed, what programs keep for
themselves among them: one that differs and that nobody named is not known, and no change. A file
somebody else changed is named. One that could be read neither then nor now is not known.

No entry and no request has room for the hashes of tens of thousands of files: a fingerprint with
`part` has files alone, and what somebody sees now leaves out what is as it was (`seen_now`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from walld.sessions.state.events import Event, check_payload

__all__ = ["Compared", "compare", "fingerprint_of", "fingerprint_then", "seen_now"]


_NAMED_MAX: Final = 100


class Compared(NamedTuple):
    """verdict: same | changed | unknown | not_compared (one of both is not there).

    changed: what differs, files as "file <path>". unknown: nothing of it, and not all was seen.
    """

    verdict: str
    changed: list[str]
    then: dict[str, Any] | None
    now: dict[str, Any] | None

    def named(self) -> str:
        """What differs, in a line: the first hundred by name."""
        named = ", ".join(self.changed[:_NAMED_MAX])
        others = len(self.changed) - _NAMED_MAX
        if others <= 0:
            return named
        more = _more(self.now or {})
        return f"{named} and {others + more - (more > 0)} others"


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
        elif taken := event.payload.get("fingerprint"):
            found = fingerprint_of(event) or found
            known = taken.get("files")
            files |= known if isinstance(known, dict) else {}
    if found is None and not files:
        return None
    return {**(found or {}), "files": files}


def fingerprint_of(event: Event) -> dict[str, Any] | None:
    """What somebody who looked at the workspace wrote down; None of any other event."""
    taken = event.payload.get("fingerprint") if event.type == "lifecycle" else None
    return taken if isinstance(taken, dict) and taken.get("part") is not True else None


def seen_now(events: Sequence[Event], now: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The workspace as somebody saw it who left out what is as the log has it.

    as_of: the newest entry that they knew; the files that it and those before it tell of are as
    they say, but for those in `files`. Where it is not here nothing was left out.
    """
    if now is None:
        return None
    as_of, files = now.get("as_of"), now.get("files")
    if not isinstance(as_of, str) or not isinstance(files, dict):
        return now
    place = next((place for place, event in enumerate(events) if event.id == as_of), -1)
    known = fingerprint_then(events[: place + 1]) or {"files": {}}
    told = {name: value for name, value in now.items() if name != "as_of"}
    return told | {"files": known["files"] | files}


def compare(
    then: dict[str, Any] | None, now: Mapping[str, Any] | None, has_written: bool
) -> Compared:
    """has_written: the agent may have made the workspace dirty itself.

    more: in `now`, how many files differ beside those that it names.
    """
    now = None if now is None else dict(now)
    if then is None or now is None:
        return Compared("not_compared", [], then, now)
    changed = []
    if "head" in then and then["head"] != now.get("head"):
        changed.append(f"head (then {then['head']}, now {now.get('head')})")
    others, is_seen = _others(then, now, has_written)
    changed += others
    files = now.get("files")
    files = files if isinstance(files, dict) else {}
    named = then["files"]
    changed += [f"file {name}" for name in named if name not in files or files[name] != named[name]]
    if more := _more(now):
        changed.append(f"{more} more files")
    if changed:
        return Compared("changed", changed, then, now)
    is_read = None not in named.values()
    return Compared("same" if is_seen and is_read else "unknown", [], then, now)


_AS_COMMITTED: Final = "as committed"


def _more(now: Mapping[str, Any]) -> int:
    """How many files differ that it does not name."""
    more = now.get("more")
    return more if isinstance(more, int) and more > 0 and more is not True else 0


def _others(
    then: Mapping[str, Any], now: Mapping[str, Any], has_written: bool
) -> tuple[list[str], bool]:
    """What differs beside the named files; and whether all was seen that may differ."""
    if "dirty" not in then:  # what an application, or its tools, named is all there is
        return [], (bool(then["files"]) or "head" in then) and not has_written
    was, is_ = then["dirty"], now.get("dirty")
    if was is False and is_ is False:
        return [], True
    if was is None and then.get("head") is None and then.get("root") is None:  # no git
        before, after = then.get("changes"), now.get("changes")
        if not (isinstance(before, dict) and isinstance(after, dict)):
            return [], False
        return [], not _differing(then, now, before, after)
    if was is None or is_ is None:
        return [], False
    before, after = _changes(then), _changes(now)
    if before is None or after is None:
        if was == is_ or has_written:
            return [], False
        return [f"dirty (then {str(was).lower()}, now {str(is_).lower()})"], True
    differing = _differing(then, now, before, after)
    if has_written:  # the agent, or somebody else
        return [], not differing
    return [f"file {path}" for path in differing], True


def _differing(
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> list[str]:
    """Of the files that were listed then or are now, those that nobody named and that differ."""
    named = {_from_root(name, now.get("root")) for name in then["files"]}
    was_kind, is_kind = then.get("kinds"), now.get("kinds")
    if not (isinstance(was_kind, dict) and isinstance(is_kind, dict)):
        was_kind = is_kind = {}  # one of both was taken by a client that did not look at them
    return [
        path
        for path in sorted({*before, *after} - named)
        if before.get(path, _AS_COMMITTED) != after.get(path, _AS_COMMITTED)
        or (path in before and path in after and was_kind.get(path) != is_kind.get(path))
    ]


def _changes(fingerprint: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The files that differ from the commit, None where not all are known."""
    if fingerprint.get("dirty") is False:
        return {}
    changes = fingerprint.get("changes")
    return changes if isinstance(changes, dict) else None


def _from_root(name: str, root: object) -> str:
    """A file's path as `changes` has it, however it was named."""
    name = posixpath.normpath(name)
    return name.removeprefix(f"{root}/") if isinstance(root, str) else name
