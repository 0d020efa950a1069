"""What an import appends, in order.

Owns: `Foreign`, `Imported`, and the rules every format shares: ids unique, parents earlier, what
was not understood kept and counted. Refuses: what a line means (the modules of the formats),
appending (the command line).

- an id that an entry brings is kept; a second entry with it is kept as text, in no message
- a parent is an entry above; one that is not there means the leaf of that moment
- the same lines give the same ids, so an import that is repeated can append once
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from walld.foreign.lines import Line
from walld.limits import ID_BYTES_MAX

__all__ = ["Draft", "Foreign", "Imported", "message", "tool_call"]


class Foreign(msgspec.Struct, frozen=True):
    """One entry to append. parent None: the leaf of that moment. at_ms 0: not known."""

    type: str
    payload: dict[str, Any]
    id: str
    parent: str | None = None
    turn: str | None = None
    key: str | None = None
    at_ms: int = 0
    leaf: bool = True
    cause: str | None = None
    correlation: str | None = None


class Imported(msgspec.Struct, frozen=True):
    """A foreign file as entries.

    not_understood: lines that became no entry of a known type; reasons: how many for each reason.
    All but a torn end are among the entries, as type "foreign.<format>". version: of the file,
    where its format counts versions.
    """

    entries: list[Foreign]
    not_understood: int
    reasons: dict[str, int]
    format: str
    version: int | None = None


def message(
    role: str,
    content: object,
    *,
    tool_calls: Sequence[dict[str, Any]] = (),
    tool_call_id: str | None = None,
    name: str | None = None,
    failed: bool = False,
    foreign: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A message in the plain shape. Content that is neither text nor blocks becomes text.

    failed: of what a tool gave; a provider is told so.
    """
    if content is None:
        content = ""
    if not isinstance(content, (str, list)):
        content = json.dumps(content, ensure_ascii=False)
    made: dict[str, Any] = {"role": role, "content": content}
    if tool_calls:
        made["tool_calls"] = list(tool_calls)
    if tool_call_id is not None:
        made["tool_call_id"] = tool_call_id
    if name is not None:
        made["name"] = name
    if failed:
        made["is_error"] = True
    if foreign:
        made["_foreign"] = foreign
    return made


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call in OpenAI's shape."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


class Draft:
    """The entries so far, and where the leaf would stand."""

    def __init__(self, format: str) -> None:  # noqa: A002
        self.format = format
        self.entries: list[Foreign] = []
        self.leaf: str | None = None
        self._parents: dict[str, str | None] = {}
        self._reasons: Counter[str] = Counter()

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return id in self._parents

    def add(
        self,
        line: Line,
        type: str,  # noqa: A002
        payload: dict[str, Any],
        *,
        id: object = None,  # noqa: A002
        parent: str | None = None,
        root: bool = False,
        at_ms: int = 0,
        leaf: bool = True,
    ) -> str:
        """Append an entry; its id. root: it hangs on nothing, wherever the leaf is."""
        if _id_or_none(id) in self._parents:
            return self.keep(line, "repeated_id", at_ms=at_ms)
        if root and self.leaf is not None:
            back = self.leaf
            self.move_leaf(line, None)
            made = self._append(line, type, payload, id, None, at_ms, leaf)
            if not leaf:
                self.move_leaf(line, back)
            return made
        return self._append(line, type, payload, id, parent, at_ms, leaf)

    def keep(
        self,
        line: Line,
        reason: str,
        *,
        id: object = None,  # noqa: A002
        parent: str | None = None,
        at_ms: int = 0,
        leaf: bool = False,
    ) -> str:
        """Keep a line as it is, and count it. Not on the path, unless others may hang on it."""
        self._reasons[reason] += 1
        wanted = None if _id_or_none(id) in self._parents else id
        payload = {"reason": reason, "line_number": line.number, "line": line.text}
        return self._append(line, f"foreign.{self.format}", payload, wanted, parent, at_ms, leaf)

    def damaged(self, line: Line) -> bool:
        """True for a line that is no object; it has been dealt with then."""
        if line.problem == "torn":
            self._reasons["torn"] += 1  # its writer never finished it: nothing was said
        elif line.problem is not None:
            self.keep(line, line.problem)
        return line.problem is not None

    def move_leaf(
        self,
        line: Line,
        target: str | None,
        *,
        id: object = None,  # noqa: A002
        at_ms: int = 0,
    ) -> str:
        """Go on from `target`, None for before the first entry."""
        assert target is None or target in self._parents, f"{target!r} is not there"
        wanted = None if _id_or_none(id) in self._parents else id
        made = self._append(line, "leaf", {"target": target}, wanted, None, at_ms, False)
        self.leaf = target
        return made

    def above(self, id: str, below: str | None) -> bool:  # noqa: A002
        """Whether an entry stands between the root and `below`, itself included."""
        while below is not None and below != id:
            below = self._parents[below]
        return below is not None

    def between(self, head: str, tail: str) -> list[str]:
        """The entries from `head`, which stands above `tail`, down to it."""
        found = [tail]
        while found[-1] != head:
            above = self._parents[found[-1]]
            assert above is not None, f"{head!r} does not stand above {tail!r}"
            found.append(above)
        return found[::-1]

    def imported(self, version: int | None = None) -> Imported:
        """What came of it."""
        reasons = dict(sorted(self._reasons.items()))
        return Imported(self.entries, sum(reasons.values()), reasons, self.format, version)

    def _append(
        self,
        line: Line,
        type: str,  # noqa: A002
        payload: dict[str, Any],
        id: object,  # noqa: A002
        parent: str | None,
        at_ms: int,
        leaf: bool,
    ) -> str:
        made = _id_or_none(id) or self._drawn(line)
        assert made not in self._parents, f"{made!r} is taken"
        if parent not in self._parents:
            parent = None
        hangs_on = self.leaf if parent is None else parent
        if type in {"label", "leaf"}:
            leaf = True  # it never becomes the leaf: nothing to say
        elif leaf:
            self.leaf = made
        self._parents[made] = hangs_on
        self.entries.append(Foreign(type, payload, made, parent, at_ms=at_ms, leaf=leaf))
        return made

    def _drawn(self, line: Line) -> str:
        """An id for an entry without one, out of its line alone."""
        n = 0
        while True:
            own = f"{line.number}\0{n}\0{line.text}".encode("utf-8", "surrogatepass")
            drawn = f"{self.format}.{blake2b(own, digest_size=9).hexdigest()}"
            if drawn not in self._parents:
                return drawn
            n += 1


def _id_or_none(id: object) -> str | None:  # noqa: A002
    """An id the ledger takes, None for anything else."""
    if not isinstance(id, str) or not id:
        return None
    try:
        return id if len(id.encode()) <= ID_BYTES_MAX else None
    except UnicodeEncodeError:
        return None
