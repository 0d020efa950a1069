"""Claude Code: session JSONL.

Owns: its lines (user, assistant, and those that are in no message), their tree, sidechains as
branches, compaction. Refuses: the files of other agents beside it, and of its own subagents.

No schema of it is published, and it changes: what is not known is kept and counted. The shapes are
those that readers of it found, with fixtures: github.com/daaain/claude-code-log and others.

- One answer of the model is several lines, one a block, and the result of each tool hangs on the
  line of its call: taken as a tree, parallel calls would lose all results but one. So what hangs
  within the answer the leaf stands in hangs on the leaf.
- A line with several results becomes several tool messages; the last has the id of the line.
- A sidechain (a subagent's talk) hangs on the entry that was the leaf when it began, and never
  becomes the leaf; unless the file holds nothing else.
- What was typed while the model worked stands in no line of the user's: in the attachment that says
  when the model was told of it. So do the words of teammates and of hooks, files, selections
  (`claude_attachments.py`).
- What the program itself says of an error of the API stands on the path and is no message.
- A line that is no message stands on the path where it came at its end, and is a leaf without one
  anywhere else. What hangs on it goes on where the conversation of its message stands by then,
  unless who wrote it went back: what the leaf came by hangs on that line, too.
- The summary that a compaction leaves replaces all above it but the messages that it preserves:
  they stand behind it, and what the file hangs on them hangs on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from walld.foreign.claude_attachments import attached
from walld.foreign.entries import Draft, Imported, failed_attempt, message, tool_call
from walld.foreign.lines import Line, Lines, as_text, at_ms, rest, text_or_none
from walld.foreign.order import NO_PARENTS, Tree
from walld.foreign.parts import Part, context_of

__all__ = ["OTHERS", "read"]

OTHERS: Final = frozenset(
    (
        "system",
        "progress",
        "attachment",
        "file-history-snapshot",
        "queue-operation",
        "last-prompt",
        "custom-title",
        "ai-title",
        "agent-name",
        "agent-color",
        "agent-setting",
        "permission-mode",
        "mode",
        "tag",
        "task-summary",
        "pr-link",
        "worktree-state",
        "bridge-session",
        "fork-context-ref",
        "file-history-delta",
        "attribution-snapshot",
        "speculation-accept",
        "content-replacement",
        "cost-state",
        "atis-latch",
        "relocated",
        "frame-link",
        "artifact-autoreact-ledger",
        "artifact-comment-monitor",
        "ended-by-model",
        "history-suppression",
        "isolation-latch",
        "marble-origami-commit",
        "marble-origami-reset",
        "marble-origami-snapshot",
        "observer-ref",
        "session-name",
        "slug",
        "started",
        "launched",
        "result",
        "failed",
    )
)
"""Known and in no message: kept as "claude.<type>"."""
_SAID: Final = frozenset(("message", "compaction"))
"""Types of entries that are of the conversation."""


def read(lines: Iterable[str | bytes]) -> Imported:
    """A session. Never raises."""
    file = _File()
    found = Lines(lines, "claude", file.look)
    session = _Session(file.has_main, file.attempts)
    if not file.tree.names_parents:
        session.is_tree = False
        session.draft.notes.append(NO_PARENTS)
    for place in file.tree.parents_first():
        line = found[place]
        if not session.draft.damaged(line):
            assert line.value is not None
            session.take(line, line.value)
    session.end()
    return session.draft.imported()


class _File:
    """What only all lines tell. has_main: some are no sidechain. attempts: see `_Session`."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.has_main = False
        self.attempts: dict[str, str] = {}

    def look(self, line: Line) -> None:
        value = line.value or {}
        parent = text_or_none(value.get("parentUuid"))
        self.tree.add(text_or_none(value.get("uuid")), parent)
        kind, said = value.get("type"), value.get("message")
        if kind not in ("user", "assistant"):
            return
        self.tree.message(parent, text_or_none(value.get("logicalParentUuid")))
        self.has_main |= value.get("isSidechain") is not True
        if kind == "assistant" and isinstance(said, dict):
            answer, ended = text_or_none(said.get("id")), failed_attempt(said.get("stop_reason"))
            if answer is not None and ended is not None:
                self.attempts[answer] = ended


class _Note(NamedTuple):
    """A line that is no message. message: the one above it, where there is one. above: the note
    that it hangs on. below: messages that the file hangs on it, or on a note that hangs on it.
    """

    message: str | None
    above: str | None
    below: list[str]


class _Session:
    """A session as far as it was read. main: it has lines that are no sidechain.

    attempts: answer that failed -> how it ended. One of its lines says so, perhaps not the first.
    """

    def __init__(self, main: bool, attempts: dict[str, str]) -> None:
        self.draft = Draft("claude")
        self.main = main
        self.attempts = attempts
        self.is_tree = True
        """Its lines name parents."""
        self.agent: str | None = None
        """Whose talk this is, though its lines are a sidechain: what it was given stands above."""
        self.contexts: list[Part] = []
        """What agents were given of sessions."""
        self.answers: dict[str, str] = {}
        """Entry -> the answer of the model it belongs to, its own calls' results included."""
        self.callers: dict[str, str] = {}
        """Call -> answer."""
        self.summaries: list[tuple[Line, dict[str, Any]]] = []
        """Titles of what ends at an entry that may come later in the file."""
        self.pinned: tuple[Line, str] | None = None
        """A leaf the file names, while nothing was said since."""
        self.said: dict[str, range] = {}
        """Where the entries of each line with an id stand."""
        self.preserved: list[str] = []
        """What the boundary of a compaction preserves, while its summary has not come."""
        self.instead: dict[str, str] = {}
        """Preserved line -> the compaction that has its messages."""
        self.notes: dict[str, _Note] = {}
        """Lines that are no message."""
        self.spoken: dict[str, int] = {}
        """Last entries of lines that are messages, in order -> the number of the line."""
        self.message_at: dict[str | None, str] = {}
        """Entry -> the message that it is, or the one above it."""
        self.continued: set[str | None] = set()
        """Messages that another one hangs on."""

    def take(self, line: Line, value: dict[str, Any]) -> None:
        kind = value.get("type")
        if kind == "summary" and isinstance(value.get("summary"), str):
            self.summaries.append((line, value))
        elif kind in ("user", "assistant"):
            made = self.messages(value, str(kind))
            if made is None:
                self.keep(line, value, "unknown_shape")
            else:
                self.place(line, value, made)
        elif kind == "attachment" and (told := attached(value)) is not None:
            self.place(line, value, [("message", told)])
        elif isinstance(kind, str) and kind in OTHERS:
            self.place(line, value, [(f"claude.{kind}", value)])
            if value.get("subtype") == "compact_boundary":
                self.preserved = self.preserves(value.get("compactMetadata"))
            if (context := context_of(value)) is not None:
                self.contexts.append(context)
                if context.until in self.draft:
                    self.agent = text_or_none(value.get("agentId"))
            if kind == "last-prompt" and (leaf := text_or_none(value.get("leafUuid"))):
                self.pinned = line, leaf
        else:
            self.keep(line, value, "unknown_type" if isinstance(kind, str) else "unknown_shape")

    def end(self) -> None:
        """Titles, now that all entries are there; and the leaf, if it is not the last line."""
        for line, value in self.summaries:
            target = value.get("leafUuid")
            foreign = rest(value, "summary", "leafUuid")
            if isinstance(target, str) and target in self.draft:
                payload = {"target": target, "text": value["summary"], "_foreign": foreign}
                self.draft.add(line, "label", payload)
            else:  # of what was said in another file
                self.draft.add(line, "claude.summary", value, leaf=False)
        for one in self.contexts:
            if one.until not in self.draft:
                count = {} if one.messages is None else {"messages": one.messages}
                where = {"session": one.of, "until": one.until}
                self.draft.elsewhere.append(count | where)
        numbers = list(self.spoken.values())
        if numbers != sorted(numbers):  # children stood before their parents
            ends = [one for one in self.spoken if one not in self.continued]
            newest = max(ends, key=self.spoken.__getitem__)
            if self.message_at.get(self.draft.leaf) != newest:
                self.draft.move_leaf(Line(0, newest), newest)
        if self.pinned is not None:
            line, leaf = self.pinned
            if leaf in self.draft and not self.draft.above(leaf, self.draft.leaf):
                self.draft.move_leaf(line, leaf)

    # --- where it hangs ---------------------------------------------------------------------------

    def place(
        self, line: Line, value: dict[str, Any], made: list[tuple[str, dict[str, Any]]]
    ) -> None:
        """Append what became of a line: all but the last have ids of their own."""
        uuid, at = text_or_none(value.get("uuid")), at_ms(value.get("timestamp"))
        if uuid is not None and uuid in self.draft:
            self.draft.keep(line, "repeated_id", at_ms=at)
            return
        side = self.is_side(value)
        is_said = any(type_ in _SAID for type_, _ in made)
        if uuid is not None and not is_said:
            parent, root, leaf = self.note(value, uuid, side)
        else:
            parent, root = self.parent(value, side)
            leaf = is_said and not side
        named = value.get("parentUuid") if uuid is not None else None
        is_orphan = parent is None and self.above(value) not in self.draft
        is_orphan = is_orphan and text_or_none(named) is not None
        answer = self.answer(value, parent)
        begins = len(self.draft.entries)
        above = None if root else self.message_at.get(parent or self.draft.leaf)
        for type_, payload in made[:-1]:
            parent = self.draft.add(
                line, type_, payload, parent=parent, root=root, at_ms=at, leaf=leaf
            )
            root = False
            self.message_at[parent] = parent
            if answer is not None:
                self.answers[parent] = answer
        type_, payload = made[-1]
        last = self.draft.add(
            line, type_, payload, id=uuid, parent=parent, root=root, at_ms=at, leaf=leaf
        )
        if answer is not None:
            self.answers[last] = answer
        if is_orphan:
            self.draft.orphans.append(last)
        if uuid is not None:
            self.said[last] = range(begins, len(self.draft.entries))
        if type_ == "compaction":
            self.instead |= dict.fromkeys(self.preserved, last)
            self.preserved = []
        if is_said:
            self.speak(line, value, last, above, side)
        elif above is not None:
            self.message_at[last] = above

    def keep(self, line: Line, value: dict[str, Any], reason: str) -> None:
        """Not understood; on the path where others may hang on it."""
        uuid, leaf, parent = text_or_none(value.get("uuid")), False, None
        side = self.is_side(value)
        if uuid is not None and uuid not in self.draft:
            parent, _, leaf = self.note(value, uuid, side)
        above = self.message_at.get(parent or self.draft.leaf)
        at = at_ms(value.get("timestamp"))
        made = self.draft.keep(line, reason, id=uuid, parent=parent, at_ms=at, leaf=leaf)
        if above is not None:
            self.message_at[made] = above

    def is_side(self, value: dict[str, Any]) -> bool:
        """Whether the line is of a subagent's talk, and this file of another."""
        return self.main and value.get("isSidechain") is True and not self.is_agents(value)

    def is_agents(self, value: dict[str, Any]) -> bool:
        """Whether the line is of the agent whose file this is, behind what it was given."""
        return self.agent is not None and value.get("agentId") == self.agent

    def above(self, value: dict[str, Any]) -> str | None:
        """What the line says that it hangs on, or what stands for that."""
        named = text_or_none(value.get("parentUuid"))
        named = named or text_or_none(value.get("logicalParentUuid"))
        return None if named is None else self.instead.get(named, named)

    def parent(self, value: dict[str, Any], side: bool) -> tuple[str | None, bool]:
        """(the entry it hangs on, None for the leaf; whether it hangs on nothing)."""
        parent = self.above(value)
        if not self.is_tree:
            return None, False
        if parent is None or parent not in self.draft:
            compacted = value.get("subtype") == "compact_boundary"
            begins = "parentUuid" in value and value["parentUuid"] is None
            return None, begins and not side and not compacted and not self.is_agents(value)
        leaf = self.draft.leaf
        if not side and leaf is not None and parent != leaf:
            if parent in self.notes:
                return self.behind(parent), False
            answer = self.answers.get(parent)
            if answer is not None and answer == self.answers.get(leaf):
                return leaf, False
        return parent, False

    def behind(self, name: str) -> str | None:
        """What a message hangs on of which the file says that it hangs on a note."""
        note, leaf = self.notes[name], self.draft.leaf
        if any(self.draft.above(one, leaf) for one in note.below):
            return name  # who wrote it went back to there
        if note.message is None or self.draft.above(note.message, leaf):
            return leaf
        tips = (one for one in reversed(self.spoken) if self.draft.above(note.message, one))
        return next(tips, name)

    def note(self, value: dict[str, Any], uuid: str, side: bool) -> tuple[str | None, bool, bool]:
        """A line that is no message: (the entry it hangs on, whether on nothing, whether it is the
        leaf): it is where it stands at the end of the conversation.
        """
        above, leaf = self.above(value), self.draft.leaf
        parent, root = self.parent(value, side)
        if above is not None and (note := self.notes.get(above)) is not None:
            self.notes[uuid], parent = _Note(note.message, above, []), above
        else:
            self.notes[uuid] = _Note(self.message_at.get(parent or leaf), None, [])
        return parent, root and leaf is None, not side and parent in (None, leaf)

    def speak(
        self, line: Line, value: dict[str, Any], last: str, above: str | None, side: bool
    ) -> None:
        """A line was a message; `last` is its last entry, `above` the message above it."""
        self.message_at[last] = last
        if side:
            return
        self.spoken[last] = line.number
        self.continued.add(above)
        self.pinned = None
        note = self.notes.get(self.above(value) or "")
        while note is not None:
            note.below.append(last)
            note = self.notes.get(note.above or "")

    def answer(self, value: dict[str, Any], parent: str | None) -> str | None:
        """The answer a line belongs to: the model's, or the one whose call it answers."""
        said = value.get("message")
        if value.get("type") == "assistant" and isinstance(said, dict):
            answer = text_or_none(said.get("id"))
            if answer is not None:
                for call in _calls(said.get("content")):
                    self.callers[call["id"]] = answer
            return answer
        if value.get("type") == "user":
            content = said.get("content") if isinstance(said, dict) else None
            called = [self.callers.get(block["tool_use_id"]) for block in _results(content)]
            return called[-1] if called else None
        return self.answers.get(parent or "")

    def preserves(self, told: object) -> list[str]:
        """The lines above that a compaction preserves, in order.

        Named one by one; by older files as a segment, from its tail up to its head.
        """
        told = told if isinstance(told, dict) else {}
        listed, segment = told.get("preservedMessages"), told.get("preservedSegment")
        if isinstance(listed, dict) and isinstance(listed.get("uuids"), list):
            return [one for one in listed["uuids"] if isinstance(one, str) and one in self.said]
        if not isinstance(segment, dict):
            return []
        head, tail = (text_or_none(segment.get(name)) for name in ("headUuid", "tailUuid"))
        if head is None or tail is None or head not in self.draft or tail not in self.draft:
            return []
        if not self.draft.above(head, tail):
            return []
        return [one for one in self.draft.between(head, tail) if one in self.said]

    # --- what it says -----------------------------------------------------------------------------

    def messages(self, value: dict[str, Any], role: str) -> list[tuple[str, dict[str, Any]]] | None:
        """The messages of a line, None where it holds none."""
        said = value.get("message")
        if not isinstance(said, dict) or not isinstance(said.get("content"), (str, list)):
            return None
        content = said["content"]
        foreign = rest(value, "message") | {"message": rest(said, "role", "content")}
        if role == "assistant":
            if value.get("isApiErrorMessage") is True:
                return [("claude.api_error", value)]
            calls, ended = _calls(content), said.get("stop_reason")
            made = message(
                role,
                content,
                tool_calls=calls,
                finish_reason=ended,
                attempt=failed_attempt(ended) or self.attempts.get(str(said.get("id"))),
                foreign=foreign,
            )
            return [("message", made)]
        if value.get("isCompactSummary") is True:
            replacement = [message("user", content)]
            for kept in self.preserved:
                entries = (self.draft.entries[at] for at in self.said[kept])
                replacement += [one.payload for one in entries if one.type == "message"]
            return [("compaction", {"replacement": replacement, "_foreign": foreign})]
        results = _results(content)
        if not results:
            return [("message", message("user", content, foreign=foreign))]
        made_of = [
            message(
                "tool",
                block.get("content"),
                tool_call_id=block["tool_use_id"],
                failed=block.get("is_error") is True,
                foreign={"block": rest(block, "content", "tool_use_id")},
            )
            for block in results
        ]
        others = [block for block in content if block not in results]
        if others:
            made_of.append(message("user", others))
        made_of[-1]["_foreign"] = made_of[-1].get("_foreign", {}) | foreign
        return [("message", made) for made in made_of]


def _calls(content: object) -> list[dict[str, Any]]:
    found = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") in ("tool_use", "server_tool_use"):
            call_id, name = text_or_none(block.get("id")), text_or_none(block.get("name"))
            if call_id and name:
                found.append(tool_call(call_id, name, as_text(block.get("input", {}))))
    return found


def _results(content: object) -> list[dict[str, Any]]:
    return [
        block
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, dict)
        and block.get("type") == "tool_result"
        and text_or_none(block.get("tool_use_id"))
    ]
