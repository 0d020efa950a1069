"""pi coding agent: session JSONL, versions 1 to 3.

Owns: the migrations 1 -> 2 -> 3, and what each type of version 3 becomes. Refuses: a newer version
(FormatError); nothing of it is imported then.

Version 1 is a line of entries without ids; 2 a tree of id and parentId; 3 calls the role
`hookMessage` `custom`. In pi a label becomes the leaf and others hang on it; here it never does, so
what hangs on a label hangs on what the label hangs on, and a compaction that keeps what is from a
label on keeps what hangs on it.

A name is the session's, not a branch's, so the last one of the file is said once more at the leaf
where its path says another.

What a thought of Anthropic's is signed with stands where Anthropic has it, so that it goes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from walld.errors import FormatError
from walld.foreign.entries import Draft, Imported, failed_attempt, message, tool_call
from walld.foreign.lines import Line, as_text, at_ms, parsed, rest, text_or_none
from walld.foreign.order import NO_PARENTS, names_parents, parents_first

__all__ = ["VERSION_MAX", "read"]

VERSION_MAX: Final = 3
_SHOWN_MAX: Final = 40
_PLACE: Final = ("type", "id", "parentId", "timestamp")
_NAME: Final = "name"
_ARGUMENTS: Final = ("arguments", "input", "args", "parameters")
_EDITABLE: Final = frozenset(("user", "assistant", "toolResult", "custom"))
_KEPT_LINE: Final = "firstKeptEntryIndex"
"""In version 1 an index of the lines that could be read; after its migration a line number."""


def read(lines: Iterable[str | bytes]) -> Imported:
    """A session. Raises FormatError for a version that is newer than VERSION_MAX, or none."""
    found = parsed(lines, "pi")
    version = _version(found)
    for migrate in (_from_1_to_2, _from_2_to_3)[version - 1 :]:
        found = migrate(found)
    session = _Session(found, tree=version > 1)
    entries = [one.value for one in found if one.value is not None and "id" in one.value]
    entries = [value for value in entries if value.get("type") != "session"]
    if version > 1 and not names_parents(entries, "parentId"):
        session.names_parents = False
        session.draft.notes.append(NO_PARENTS)
    for line in parents_first(found, "id", "parentId"):
        if not session.draft.damaged(line):
            assert line.value is not None
            session.take(line, line.value)
    session.end()
    return session.draft.imported(version)


def _version(lines: list[Line]) -> int:
    for line in lines:
        if line.value is not None and line.value.get("type") == "session":
            version = line.value.get("version")
            if version is None:
                version = 1
            if not isinstance(version, bool) and version in range(1, VERSION_MAX + 1):
                # To pi 3.0 is 3. Who names parents writes a tree, whatever he calls it.
                return VERSION_MAX if version == 1 and _names_parents(lines) else int(version)
            raise FormatError(
                f"line {line.number}: version of a pi session: got {_shown(version)}, limit"
                f" {VERSION_MAX}; a newer walld may read it"
            )
    # Without its header only the shape of the entries tells.
    tree = any(line.value is not None and "parentId" in line.value for line in lines)
    return VERSION_MAX if tree else 1


def _names_parents(lines: list[Line]) -> bool:
    values = (line.value for line in lines if line.value is not None)
    return any(text_or_none(value.get("parentId")) is not None for value in values)


def _shown(version: object) -> str:
    text = json.dumps(version)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _from_1_to_2(lines: list[Line]) -> list[Line]:
    """What a compaction keeps is named by its place; `_Session` gives it an id once it has one.

    pi counts the lines it could read, so do we.
    """
    readable = [line for line in lines if line.value is not None and not line.is_found]
    migrated = []
    for line in lines:
        value = line.value
        if value is not None and value.get("type") == "compaction":
            kept = value.get(_KEPT_LINE)
            if isinstance(kept, int) and not isinstance(kept, bool) and 0 <= kept < len(readable):
                value = value | {_KEPT_LINE: readable[kept].number}
            else:
                value = rest(value, _KEPT_LINE)
        migrated.append(line.with_value(value))
    return migrated


def _from_2_to_3(lines: list[Line]) -> list[Line]:
    migrated = []
    for line in lines:
        value = line.value
        if value is not None and value.get("type") == "message":
            said = value.get("message")
            if isinstance(said, dict) and said.get("role") == "hookMessage":
                value = value | {"message": said | {"role": "custom"}}
        migrated.append(line.with_value(value))
    return migrated


class _Session:
    """A session as far as it was read."""

    def __init__(self, lines: list[Line], *, tree: bool) -> None:
        self.lines = lines
        self.draft = Draft("pi")
        self.tree = tree
        self.names_parents = tree
        self.leaf: str | None = None
        """The last entry, or what it hangs on where that is a label: pi's leaf."""
        self.last_line = 0
        """Of which that leaf is."""
        self.instead: dict[str, str | None] = {}
        """What stands for an entry that nothing can hang on here: a label."""
        self.labels: dict[str, frozenset[str]] = {}
        """Of a label, and of an entry that hangs on one: the labels in a row right above it."""
        self.by_line: dict[int, str] = {}
        self.name: tuple[int, str | None] | None = None
        """The last one, with its line."""
        self.names: dict[str, str | None] = {}
        """By its entry, each."""
        self.line_of: dict[str, Line] = {}
        """By its id; made when it is first asked for."""

    def take(self, line: Line, value: dict[str, Any]) -> None:
        kind = value.get("type")
        if kind == "session":
            self.header(line, value)
            return
        if kind == "leaf" and self.tree and self.move(line, value):
            return
        taker = _TAKERS.get(kind) if isinstance(kind, str) else None
        made = taker(self, value) if taker is not None else None
        if made is None:
            reason = "unknown_type" if taker is None else "unknown_shape"
            self.place(line, value, "", {}, not_understood=reason)
        else:
            self.place(line, value, *made)

    def end(self) -> None:
        """The leaf in pi, where that is not the last entry that was appended."""
        if self.tree and self.draft.entries and self.leaf != self.draft.leaf:
            self.draft.move_leaf(Line(0, self.draft.entries[-1].id), self.leaf)
        if self.name is not None and self.name_at_leaf() != (name := self.name[1]):
            said = {"key": _NAME, "value": name}
            self.draft.add(Line(0, f"{_NAME} {self.draft.entries[-1].id}"), "setting", said)

    def name_at_leaf(self) -> str | None:
        """That which the path to the leaf says last."""
        above = self.draft.path(self.draft.leaf)
        return next((self.names[one] for one in above if one in self.names), None)

    def place(
        self,
        line: Line,
        value: dict[str, Any],
        type: str,  # noqa: A002
        payload: dict[str, Any],
        *,
        not_understood: str | None = None,
    ) -> None:
        """Append it where it hangs."""
        id = value.get("id")  # noqa: A001
        parent = self.parent(value)
        at = at_ms(value.get("timestamp"))
        if not_understood is not None:
            # Others may hang on it, so it is on the path as in pi.
            kept = self.tree and isinstance(id, str) and id not in self.draft
            made = self.draft.keep(line, not_understood, id=id, parent=parent, at_ms=at, leaf=kept)
            if kept:
                self.stand(line, made)
            return
        if isinstance(id, str) and id in self.draft:
            self.draft.keep(line, "repeated_id", parent=parent, at_ms=at)
            return
        is_unknown = self.unknown(value)  # before it is there itself: it may name itself
        root = self.is_root(value)
        made = self.draft.add(
            line, type, payload, id=id, parent=parent, root=root and type != "label", at_ms=at
        )
        if not line.is_found:
            self.by_line[line.number] = made
        if self.tree and is_unknown:  # what it names is gone, or stands below it
            self.draft.orphans.append(made)
        if type == "setting" and payload["key"] == _NAME:
            self.names[made] = payload["value"]
            if self.name is None or line.number >= self.name[0]:
                self.name = line.number, payload["value"]
        hung = value.get("parentId")
        if isinstance(hung, str) and hung in self.instead:
            self.labels[made] = self.labels.get(hung, frozenset())
        if type == "label":
            self.labels[made] = self.labels.get(made, frozenset()) | {made}
            self.instead[made] = None if root else parent or self.draft.leaf
            self.stand(line, self.instead[made])
        else:
            self.stand(line, made)

    def move(self, line: Line, value: dict[str, Any]) -> bool:
        """A move of the leaf, where its target is known."""
        target = self.stands_for(value.get("targetId"))
        if "targetId" not in value or (target is None and value["targetId"] is not None):
            return False
        at = at_ms(value.get("timestamp"))
        made = self.draft.move_leaf(line, target, id=value.get("id"), at_ms=at)
        self.instead[made] = target
        self.stand(line, target)
        return True

    def stand(self, line: Line, leaf: str | None) -> None:
        """The leaf as of this line, unless one behind it was taken before."""
        if line.number >= self.last_line:
            self.leaf, self.last_line = leaf, line.number

    def parent(self, value: dict[str, Any]) -> str | None:
        """What stands here for the entry it hangs on."""
        return self.stands_for(value.get("parentId")) if self.tree else None

    def is_root(self, value: dict[str, Any]) -> bool:
        """Whether it hangs on nothing, and says so."""
        is_free = self.parent(value) is None and not self.unknown(value)
        return self.names_parents and "parentId" in value and is_free

    def unknown(self, value: dict[str, Any]) -> bool:
        """Whether it hangs on what was never seen; then it hangs on the leaf."""
        parent = value.get("parentId")
        return parent is not None and not (isinstance(parent, str) and parent in self.draft)

    def header(self, line: Line, value: dict[str, Any]) -> None:
        """Its id is the session's. Version 1 says there what model it begins with."""
        at = at_ms(value.get("timestamp"))
        self.draft.add(line, "pi.session", value, at_ms=at, leaf=False)
        if not self.tree and (change := self.model_change(value)) is not None:
            self.draft.add(line, *change, at_ms=at)
        if not self.tree and (setting := self.thinking_level(value)) is not None:
            self.draft.add(line, *setting, at_ms=at)

    def model_change(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        model = text_or_none(value.get("modelId")) or text_or_none(value.get("model"))
        if model is None:
            return None
        payload: dict[str, Any] = {"model": model}
        if provider := text_or_none(value.get("provider")):
            payload["provider"] = provider
        return "model_change", payload

    def thinking_level(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        if "thinkingLevel" not in value:
            return None
        return "setting", {"key": "thinking_level", "value": value["thinkingLevel"]}

    def session_info(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        foreign = _foreign(rest(value, *_PLACE, "name"))
        name = value.get("name")
        name = name.strip() or None if isinstance(name, str) else None
        return "setting", {"key": _NAME, "value": name} | foreign

    def compaction(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        summary = value.get("summary")
        if not isinstance(summary, str):
            return None
        first_kept = value.get("firstKeptEntryId")
        if not self.tree and _KEPT_LINE in value:
            first_kept = self.by_line.get(value[_KEPT_LINE])
        foreign = _foreign(rest(value, *_PLACE, "summary"))
        first_kept = self.first_kept(first_kept, value)
        if first_kept is not None:
            return "compaction", {"summary": summary, "first_kept": first_kept} | foreign
        # pi keeps nothing then but the summary, which it sends as the user's.
        replacement = [message("user", summary)]
        return "compaction", {"replacement": replacement, "summary": summary} | foreign

    def first_kept(self, named: object, value: dict[str, Any]) -> str | None:
        """The first entry that a compaction keeps; None where that is not on its path."""
        if not isinstance(named, str) or self.is_root(value):
            return None
        below = self.parent(value) or self.draft.leaf
        if named in self.instead:
            kept = [one for one in self.draft.path(below) if named in self.labels.get(one, ())]
            return kept[-1] if kept else None
        return named if named in self.draft and self.draft.above(named, below) else None

    def branch_summary(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        if not isinstance(value.get("summary"), str):
            return None
        payload = {"target": self.stands_for(value.get("fromId")), "text": value["summary"]}
        return "branch_summary", payload | _foreign(rest(value, *_PLACE, "summary"))

    def label(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        target = self.stands_for(value.get("targetId"))
        text = value.get("label")
        if target is None or not isinstance(text, (str, type(None))):
            return None
        payload = {"target": target, "text": text or None}
        return "label", payload | _foreign(rest(value, *_PLACE, "label"))

    def context_edit(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Other words, or none, for a message of its path from here on."""
        said, edited = value.get("replacement"), self.stands_for(value.get("targetId"))
        content = said.get("content") if isinstance(said, dict) else None
        if said is not None and not isinstance(content, (str, list)):
            return None
        place = rest(value, *_PLACE)
        below = self.parent(value) or self.draft.leaf
        if edited is None or self.is_root(value) or not self.draft.above(edited, below):
            return "pi.context_edit", place
        made = self.edited(self.value_of(edited), content)
        if made is None:
            return "pi.context_edit", place
        foreign = made.get("_foreign", {}) | {"context_edit": rest(place, "targetId")}
        return "message_edit", {"target": edited, "message": made | {"_foreign": foreign}}

    def edited(self, value: dict[str, Any], content: object) -> dict[str, Any] | None:
        """The message of an entry with that content, None for no words; None of no message."""
        content = "" if content is None else content
        made: tuple[str, dict[str, Any]] | None = None
        if value.get("type") == "custom_message":
            made = self.custom_message(value | {"content": content})
        elif isinstance(said := value.get("message"), dict) and said.get("role") in _EDITABLE:
            made = self.message(value | {"message": said | {"content": content}})
        return made[1] if made is not None and made[0] == "message" else None

    def value_of(self, id: str) -> dict[str, Any]:  # noqa: A002
        """The line of an entry."""
        if not self.line_of:
            for line in self.lines:
                named = None if line.value is None else line.value.get("id")
                if isinstance(named, str):
                    self.line_of.setdefault(named, line)
        found = self.line_of.get(id)
        return {} if found is None or found.value is None else found.value

    def usage(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "pi.usage", rest(value, *_PLACE)

    def custom(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "pi.custom", rest(value, *_PLACE)

    def custom_message(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """What an extension tells the model; pi sends it as the user's."""
        foreign = rest(value, *_PLACE, "content") | {"type": "custom_message"}
        return "message", message("user", value.get("content"), foreign=foreign)

    def message(self, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        said = value.get("message")
        if not isinstance(said, dict):
            return None
        role, content = said.get("role"), said.get("content")
        foreign = rest(said, "role", "content")
        if more := rest(value, *_PLACE, "message"):
            foreign["entry"] = more
        if role == "assistant":
            if said.get("provider") == "anthropic":
                content = _signed(content)
            calls, ended = _calls(content), said.get("stopReason")
            made = message(
                role,
                content,
                tool_calls=calls,
                finish_reason=ended,
                attempt=failed_attempt(ended),
                foreign=foreign,
            )
            return "message", made
        if role == "toolResult":
            call_id = text_or_none(said.get("toolCallId"))
            name = text_or_none(said.get("toolName"))
            failed = said.get("isError") is True
            made = message(
                "tool", content, tool_call_id=call_id, name=name, failed=failed, foreign=foreign
            )
            return ("message", made) if call_id is not None else None
        if role == "bashExecution":
            if said.get("excludeFromContext") is True:
                return "pi.bash_execution", said
            return "message", message("user", _ran(said), foreign=foreign | {"role": role})
        if role in ("user", "system"):
            return "message", message(role, content, foreign=foreign)
        if role == "custom":
            return "message", message("user", content, foreign=foreign | {"role": role})
        return None

    def stands_for(self, id: object) -> str | None:  # noqa: A002
        """The entry of that id here, None where there is none."""
        if isinstance(id, str) and id in self.instead:
            return self.instead[id]
        return id if isinstance(id, str) and id in self.draft else None


def _foreign(more: dict[str, Any]) -> dict[str, Any]:
    return {"_foreign": more} if more else {}


def _calls(content: object) -> list[dict[str, Any]]:
    found = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call_id, name = text_or_none(block.get("id")), text_or_none(block.get("name"))
            if call_id and name:
                found.append(tool_call(call_id, name, as_text(_arguments(block))))
    return found


def _signed(content: object) -> object:
    """Thoughts with their signature where Anthropic has it, whose it is."""
    if not isinstance(content, list):
        return content
    return [_thought(one) if isinstance(one, dict) else one for one in content]


def _thought(block: dict[str, Any]) -> dict[str, Any]:
    signature = block.get("thinkingSignature")
    if block.get("type") != "thinking" or not isinstance(signature, str) or not signature:
        return block
    if block.get("redacted") is True:
        return block | {"type": "redacted_thinking", "data": signature}
    return block | {"signature": signature}


def _arguments(block: dict[str, Any]) -> object:
    """Some who write like pi call them otherwise, as Anthropic does."""
    return next((block[name] for name in _ARGUMENTS if name in block), {})


def _ran(said: dict[str, Any]) -> str:
    """A command the user ran, told to the model."""
    told = f"Ran `{said.get('command')}`"
    if output := said.get("output"):
        told += f"\n```\n{output}\n```"
    if said.get("exitCode"):
        told += f"\n(exit code {said['exitCode']})"
    if said.get("cancelled") is True:
        told += "\n(cancelled)"
    if said.get("truncated") is True:
        whole = text_or_none(said.get("fullOutputPath"))
        told += "\n(only a part of the output" + (f"; all of it: {whole})" if whole else ")")
    return told


_Taker = Callable[[_Session, dict[str, Any]], tuple[str, dict[str, Any]] | None]
_TAKERS: Final[dict[str, _Taker]] = {
    "message": _Session.message,
    "model_change": _Session.model_change,
    "thinking_level_change": _Session.thinking_level,
    "session_info": _Session.session_info,
    "compaction": _Session.compaction,
    "branch_summary": _Session.branch_summary,
    "label": _Session.label,
    "context_edit": _Session.context_edit,
    "usage": _Session.usage,
    "custom": _Session.custom,
    "custom_message": _Session.custom_message,
}
