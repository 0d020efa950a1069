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
  when the model was told of it (`queued_command`).
- What the program itself says of an error of the API stands on the path and is no message.
- The summary that a compaction leaves replaces all above it but the messages that it preserves:
  they stand behind it, and what the file hangs on them hangs on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from walld.foreign.entries import Draft, Imported, message, tool_call
from walld.foreign.lines import Line, as_text, at_ms, parsed, rest, text_or_none

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


def read(lines: Iterable[str | bytes]) -> Imported:
    """A session. Never raises."""
    found = parsed(lines, "claude")
    values = [line.value for line in found if line.value is not None]
    main = any(value.get("isSidechain") is not True for value in values if _said(value))
    session = _Session(main)
    for line in found:
        if not session.draft.damaged(line):
            assert line.value is not None
            session.take(line, line.value)
    session.end()
    return session.draft.imported()


def _said(value: dict[str, Any]) -> bool:
    return value.get("type") in ("user", "assistant") and "uuid" in value


class _Session:
    """A session as far as it was read. main: it has lines that are no sidechain."""

    def __init__(self, main: bool) -> None:
        self.draft = Draft("claude")
        self.main = main
        self.answers: dict[str, str] = {}
        """Entry -> the answer of the model it belongs to, its own calls' results included."""
        self.callers: dict[str, str] = {}
        """Call -> answer."""
        self.summaries: list[tuple[Line, dict[str, Any]]] = []
        """Titles of what ends at an entry that may come later in the file."""
        self.pinned: tuple[Line, str] | None = None
        """A leaf the file names, while nothing was said since."""
        self.said: dict[str, list[dict[str, Any]]] = {}
        """The messages of each line with an id."""
        self.preserved: list[str] = []
        """What the boundary of a compaction preserves, while its summary has not come."""
        self.instead: dict[str, str] = {}
        """Preserved line -> the compaction that has its messages."""

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
        elif kind == "attachment" and (told := _queued(value)) is not None:
            self.place(line, value, [("message", told)])
        elif isinstance(kind, str) and kind in OTHERS:
            self.place(line, value, [(f"claude.{kind}", value)])
            if value.get("subtype") == "compact_boundary":
                self.preserved = self.preserves(value.get("compactMetadata"))
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
        side = self.main and value.get("isSidechain") is True
        leaf = uuid is not None and not side
        parent, root = self.parent(value, side) if uuid is not None else (None, False)
        named = value.get("parentUuid") if uuid is not None else None
        is_orphan = parent is None and text_or_none(named) is not None
        answer = self.answer(value, parent)
        for type_, payload in made[:-1]:
            parent = self.draft.add(
                line, type_, payload, parent=parent, root=root, at_ms=at, leaf=leaf
            )
            root = False
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
            self.said[last] = [payload for type_, payload in made if type_ == "message"]
        if type_ == "compaction":
            self.instead |= dict.fromkeys(self.preserved, last)
            self.preserved = []
        if leaf:
            self.pinned = None

    def keep(self, line: Line, value: dict[str, Any], reason: str) -> None:
        """Not understood; on the path where others may hang on it."""
        uuid = text_or_none(value.get("uuid"))
        side = self.main and value.get("isSidechain") is True
        parent = self.parent(value, side)[0] if uuid is not None else None
        leaf = uuid is not None and uuid not in self.draft and not side
        at = at_ms(value.get("timestamp"))
        self.draft.keep(line, reason, id=uuid, parent=parent, at_ms=at, leaf=leaf)

    def parent(self, value: dict[str, Any], side: bool) -> tuple[str | None, bool]:
        """(the entry it hangs on, None for the leaf; whether it hangs on nothing)."""
        parent = value.get("parentUuid")
        if parent is None:
            parent = value.get("logicalParentUuid")
        if isinstance(parent, str):
            parent = self.instead.get(parent, parent)
        if not isinstance(parent, str) or parent not in self.draft:
            compacted = value.get("subtype") == "compact_boundary"
            begins = "parentUuid" in value and value["parentUuid"] is None
            return None, begins and not side and not compacted
        leaf = self.draft.leaf
        if not side and leaf is not None and parent != leaf:
            answer = self.answers.get(parent)
            if answer is not None and answer == self.answers.get(leaf):
                return leaf, False
        return parent, False

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
            made = message(role, content, tool_calls=calls, finish_reason=ended, foreign=foreign)
            return [("message", made)]
        if value.get("isCompactSummary") is True:
            replacement = [message("user", content)]
            for kept in self.preserved:
                replacement += self.said[kept]
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


def _queued(value: dict[str, Any]) -> dict[str, Any] | None:
    """The message of an attachment that came out of the queue, None for any other."""
    held = value.get("attachment")
    if not isinstance(held, dict) or held.get("type") != "queued_command":
        return None
    if not isinstance(held.get("prompt"), (str, list)):
        return None
    foreign = rest(value, "attachment") | {"attachment": rest(held, "prompt")}
    return message("user", held["prompt"], foreign=foreign)


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
