"""A session's transcript, as text for a person: what was said and done, branch by branch.

Owns: how turns, messages, tools and branches are drawn. Refuses: asking for them, printing them,
the width of the terminal (an argument), lines and columns (`page.py`).

Everything stands where its entry stands: in the order of the log, and on its branch. Where several
branches go on from an entry, those that were left stand to the right behind a line, and the one
that leads to the leaf goes straight on below them.

Invariant: what an application or a model said never reaches the terminal unescaped. Never raises
for a field that is missing or of another type, and leaves nothing out for it: what stands nowhere
in the tree is shown at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from walld.cli.page import Page, Word, cell, columns, cut, maps, plain
from walld.cli.session.branches import Branches, Step
from walld.cli.show import CUT_OFF

__all__ = ["render_show"]

_LINES_MAX: Final = 40
_RESULT_LINES_MAX: Final = 12
"""Of one message, and of what a tool answered; the whole is what `messages` and `export` give."""
_STATES: Final = {
    "completed": "green",
    "interrupted": "red",
    "unknown": "red",
    "failed": "red",
    "denied": "red",
    "done": "green",
    "finished": "green",
    "observed": "green",
    "complete": "green",
    "live": "cyan",
    "crashed": "red",
    "errored": "red",
}
_CALLS: Final = ("tool_use", "toolCall")
_OF_MODEL: Final = (*("status", "error_class", "model", "request_id", "provider", "error_kind"),)
_PLAIN_TYPES: Final = frozenset(
    ("verification", "budget", "lifecycle", "model_change", "observation")
)
"""Entries that tell how the work went; others are dim."""
_ROLES: Final = {"user": "cyan", "assistant": "bold", "tool": "dim", "system": "dim"}


class _Item(NamedTuple):
    """What is drawn at an entry, one of these or a turn's beginning. number: of its turn, or 0."""

    number: int
    part: Mapping[str, Any]
    message: Mapping[str, Any] | None = None
    tool: Mapping[str, Any] | None = None
    change: Mapping[str, Any] | None = None
    entry: Mapping[str, Any] | None = None
    reply: Mapping[str, Any] | None = None


def render_show(
    transcript: object,
    session_id: str,
    *,
    width: int,
    colour: bool,
    tree: Mapping[str, Any] | None = None,
) -> str:
    """The transcript: turns with their messages and tools, and between them what is of no turn.

    tree: the view of that name, which says where everything stands; without it all is one branch.
    """
    page = Page(width, colour)
    page.line(page.paint("bold", f"session {cell(session_id)}"))
    items = _items(transcript)
    branches = Branches(tree or {}, {place for place, _ in items if place is not None})
    at: dict[str, list[_Item]] = {}
    elsewhere = []
    for place, item in items:
        if place is not None and place in branches:
            at.setdefault(place, []).append(item)
        else:
            elsewhere.append(item)
    drawer = _Drawer(page, is_noted=not branches.are_several)
    for step in branches.walk():
        drawer.step(step, at.get(step.entry, []))
    page.margin = ""
    drawer.is_noted = True
    for item in elsewhere:
        drawer.draw(item)
    if len(page.lines) == 1:
        page.line(page.paint("dim", "nothing was said"))
    return "\n".join(page.lines)


def _items(transcript: object) -> list[tuple[str | None, _Item]]:
    """Everything to draw with the entry it stands at, part by part, each in the order of the log.

    None where that is not known.
    """
    found: list[tuple[str | None, _Item]] = []
    number = 0
    for part in maps(transcript):
        is_turn = part.get("turn_id") is not None
        number += is_turn
        of = number if is_turn else 0
        if is_turn:
            found.append((_name(part.get("id")), _Item(of, part)))
        said = [
            (_seq(one, "first_seq"), _Item(of, part, one)) for one in maps(part.get("messages"))
        ]
        done = [(_seq(one, "seq"), _Item(of, part, None, one)) for one in maps(part.get("tools"))]
        noted = [
            (_seq(one, "seq"), _Item(of, part, entry=one))
            for one in maps(part.get("entries"))
            if not _is_silent(one)
        ]
        last = _name(part.get("id"))
        for _, item in sorted([*said, *done, *noted], key=lambda one: (_is_loose(one[1]), one[0])):
            told = item.message or item.tool or item.entry or {}
            if not _is_loose(item):
                names = (_name(told.get(one)) for one in ("stands_at", "first_id", "id"))
                last = next(filter(None, names), None)
            found.append((last, item))
        models = map(_model, maps(part.get("model_calls")))
        found += [(last, _Item(of, part, entry=one)) for one in models]
        found += [(last, _Item(of, part, reply=one)) for one in maps(part.get("replies"))]
        changes = maps(part.get("changes"))
        found += [(_name(one.get("id")), _Item(of, part, change=one)) for one in changes]
    return found


def _model(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a call of the model, as an entry: first what no line is too short for."""
    told = [plain(record[name]) for name in _OF_MODEL if record.get(name)]
    usage = record.get("usage")
    if isinstance(usage, Mapping) and usage:
        told.append(", ".join(f"{name} {number}" for name, number in usage.items()))
    return {"type": "model_call", "payload": "; ".join(told)}


def _is_silent(entry: Mapping[str, Any]) -> bool:
    """Bookkeeping, which `walld session events` has."""
    return entry.get("type") in ("setting", "forked", "imported")


def _is_loose(item: _Item) -> bool:
    """A call of a reply that is not released: no entry says it, so it stands behind its turn's."""
    return item.tool is not None and bool(item.tool.get("unreleased"))


def _name(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _seq(told: Mapping[str, Any], name: str) -> int:
    seq = told.get(name)
    return seq if isinstance(seq, int) else 0


class _Drawer:
    """What is on the page so far. is_noted: whether what is off the path says so itself."""

    def __init__(self, page: Page, is_noted: bool) -> None:
        self.page = page
        self.is_noted = is_noted
        self._under: int | None = None
        """The turn whose heading stands above, 0 for that of none."""
        self._headed: set[int] = set()

    def step(self, step: Step, items: list[_Item]) -> None:
        """An entry of the tree, or a branch that begins."""
        page = self.page
        if step.heading is not None:
            page.margin = step.margin[:-3] + "│" if step.margin else ""
            page.line()
            page.margin = step.margin
            page.line(page.paint("dim", cut(step.heading, page.width)))
            self._under = None
            return
        page.margin = step.margin
        if step.summary:
            page.line()
            page.line(page.paint("dim", "what the branch that was left came to"))
            page.block(step.summary, "    ", _LINES_MAX)
            self._under = None
        for item in items:
            self.draw(item)

    def draw(self, item: _Item) -> None:
        """It, under the heading of its turn; what changes messages stands by itself."""
        if item.change is not None:
            _change(self.page, item.change, self.is_noted)
            return
        if item.entry is not None:
            _entry(self.page, item.entry, self.is_noted)
            return
        if self._under != item.number:
            self._head(item)
        if item.message is not None:
            # A call that was journalled stands on its own, with how it ended.
            tools = [one for one in maps(item.part.get("tools")) if not one.get("unreleased")]
            told = {tool["call_id"] for tool in tools if isinstance(tool.get("call_id"), str)}
            _message(self.page, item.message, told, self.is_noted)
        elif item.tool is not None:
            _tool(self.page, item.tool)
        elif item.reply is not None:
            of_it = {one.get("call_id") for one in maps(item.part.get("tools"))}
            _reply(self.page, item.reply, of_it)

    def _head(self, item: _Item) -> None:
        page, self._under = self.page, item.number
        page.line()
        if item.number == 0:
            page.line(page.paint("dim", "outside of any turn"))
        elif item.number in self._headed:
            page.line(page.paint("dim", f"turn {item.number} goes on"))
        else:
            self._headed.add(item.number)
            _turn(page, item.number, item.part, self.is_noted)


def _turn(page: Page, number: int, turn: Mapping[str, Any], is_noted: bool) -> None:
    """How it ended, when it began, how long it took; its id, and what else there is to say."""
    state = cell(turn.get("state")) or "unknown"
    reason = f" ({reason})" if (reason := cell(turn.get("reason"))) else ""
    first: list[Word] = [("bold", f"turn {number}")]
    first.append((_STATES.get(state, "yellow"), state + reason))
    first.append((None, _time(turn.get("submitted_at_ms"))))
    first.append((None, _duration(turn.get("duration_ms"))))
    more: list[Word] = [("dim", cell(turn.get("turn_id")))]
    if model := cell(turn.get("model")):
        more.append(("dim", f"model {model}"))
    if retried := cell(turn.get("retry_of")):
        more.append(("dim", f"retry of {retried}"))
    if ends := turn.get("collisions"):
        count = len(ends) if isinstance(ends, list) else ends
        more.append(("yellow", f"ended {cell(count)} times more"))
    if is_noted and turn.get("on_path") is False:
        more.append(("dim", "on another branch"))
    page.words(first, more)


def _change(page: Page, change: Mapping[str, Any], is_noted: bool) -> None:
    """What an edit, an undo or a compaction did, in one line."""
    of, count = cell(change.get("of")), cell(change.get("count"))
    match change.get("type"):
        case "undo":
            text = f"undo of {count} message{'' if count == '1' else 's'}"
        case "message_edit":
            text = f"edit of {of}" if of else f"edit: a list of {count} in place of all messages"
        case _:
            text = f"compaction: {count} in place of all messages so far"
            if not count:
                text = f"compaction, kept from {of}: {cell(change.get('summary'))}"
    if is_noted and change.get("on_path") is False:
        text = f"(on another branch) {text}"
    page.line("  " + page.paint("dim", cut(f"~ {text}", page.width - 2)))


def _entry(page: Page, entry: Mapping[str, Any], is_noted: bool) -> None:
    """What else stands in the log: its type, and the beginning of its JSON."""
    kind, payload = cell(entry.get("type")), entry.get("payload")
    text = f"- {kind} {payload if isinstance(payload, str) else plain(payload)}"
    if is_noted and entry.get("on_path") is False:
        text = f"(on another branch) {text}"
    colour = None if kind in _PLAIN_TYPES else "dim"
    page.line("  " + page.paint(colour, cut(cell(text), page.width - 2)))


def _reply(page: Page, reply: Mapping[str, Any], of_it: set[Any]) -> None:
    """What a reply says that is not released, below whether it is whole and who has it.

    of_it: ids of calls that stand on their own.
    """
    status, why = cell(reply.get("status")) or "unknown", cell(reply.get("partial_reason"))
    first: list[Word] = [("bold", f"= reply {cell(reply.get('stream_id'))}")]
    first.append((_STATES.get(status, "yellow"), status))
    speaks = status == "live" and reply.get("owner_alive")
    is_cut = not (reply.get("ended", True) or speaks)  # an older daemon does not say
    whole: Word = ("red", CUT_OFF) if is_cut else (None, "so far" if speaks else "whole")
    first.append(("red", f"partial ({why})") if reply.get("partial") else whole)
    first.append((None, "owner alive" if reply.get("owner_alive") else "owner gone"))
    more: list[Word] = [("dim", "not released")]
    if unread := cell(reply.get("unread")):
        more.append(("yellow", cut(unread, page.width - 4)))
    page.words(first, more, "  ")
    said = maps(reply.get("messages"))
    for message in said:
        _said(page, message, of_it)
    if not said:
        is_there = bool(reply.get("adopted"))
        text = "what it said stands in the session" if is_there else "it said nothing"
        page.line("    " + page.paint("dim", text))


def _message(page: Page, said: Mapping[str, Any], told: set[Any], is_noted: bool) -> None:
    """As it is now, where it was edited."""
    edited = said.get("edited")
    message = edited if isinstance(edited, Mapping) else said.get("message")
    if not isinstance(message, Mapping):
        return
    role = cell(message.get("role")) or "?"
    name = cell(message.get("name")) or cell(message.get("tool_call_id"))
    head = f"{role} {name}".rstrip() if role == "tool" else role
    notes = [
        word
        for word, is_so in (
            ("partial", message.get("_partial")),
            ("recovered", message.get("_wal_recovered")),
            ("edited", isinstance(edited, Mapping)),
            (cell(said.get("gone")), said.get("gone")),
            ("on another branch", is_noted and said.get("on_path") is False),
        )
        if is_so
    ]
    head += f" ({', '.join(notes)})" if notes else ""
    page.line("  " + page.paint(_ROLES.get(role), cut(head, page.width - 2)))
    _said(page, message, told)


def _said(page: Page, message: Mapping[str, Any], told: set[Any]) -> None:
    """What a message says, with its calls but those that stand on their own."""
    role = cell(message.get("role"))
    most, colour = (_RESULT_LINES_MAX, "dim") if role == "tool" else (_LINES_MAX, None)
    if isinstance(thought := message.get("reasoning"), str):
        page.block(f"(reasoning) {thought}", "    ", _RESULT_LINES_MAX, "dim")
    page.block(_text(message.get("content")), "    ", most, colour)
    attached = message.get("attachments")
    for one in attached if isinstance(attached, list) else ():
        page.line("    " + page.paint("dim", cut(f"+ {_attached(one)}", page.width - 4)))
    content = message.get("content")
    blocks = [one for one in maps(content) if one.get("type") in _CALLS]
    listed = maps(message.get("tool_calls"))
    for call in listed or blocks:
        if isinstance(call.get("id"), str) and call["id"] in told:
            continue
        function = call.get("function")
        named = function if isinstance(function, Mapping) else call
        arguments = cell(named.get("arguments", named.get("input")))
        outcome = cut(cell(call.get("outcome")), page.width // 2)
        line = f"-> {cell(named.get('name')) or '?'}({arguments})"
        line = cut(line, page.width - 4 - columns(outcome) - 2)
        told_of_it = page.paint(_STATES.get(outcome, "yellow"), outcome)
        page.line(("    " + page.paint("yellow", line) + "  " + told_of_it).rstrip())


def _attached(one: object) -> str:
    """A file by its name, with its size where walld keeps it; what has none is shown as it is."""
    if not isinstance(one, Mapping):
        return cell(one)
    held = one.get("_artifact")
    if not isinstance(held, Mapping):
        return cell(one["name"] if isinstance(one.get("name"), str) else one)
    name = cell(held.get("name")) or f"artifact {cell(held.get('sha256'))}"
    return f"{name}, {cell(held.get('size'))} bytes"


def _tool(page: Page, tool: Mapping[str, Any]) -> None:
    """The tool, how it ended, how long it took, in one line where the terminal is wide enough."""
    outcome = cell(tool.get("outcome")) or cell(tool.get("state")) or "unknown"
    name, state = cell(tool.get("tool")) or "?", cell(tool.get("state"))
    first: list[Word] = [(None, f"* {cut(name, page.width // 2)}")]
    first.append((_STATES.get(outcome, "yellow"), outcome))
    first.append(("dim", state if state != outcome else ""))
    first.append((None, _duration(tool.get("duration_ms"))))
    more: list[Word] = [("dim", cell(tool.get("call_id")))]
    if isinstance(reply := tool.get("unreleased"), Mapping):
        stream, status = cell(reply.get("stream_id")), cell(reply.get("status"))
        more.append(("dim", f"of reply {stream}, {status}, not released"))
    if child := cell(tool.get("child")):
        more.append((None, f"the work of session {child}"))
    page.words(first, more, "  ")
    for name, mark in (("arguments", "("), ("result", "=>")):
        if shown := cell(tool.get(name)):
            page.line("    " + page.paint("dim", cut(f"{mark} {shown}", page.width - 4)))
    for one in maps(tool.get("decisions")):
        if shown := _decided(one):
            page.line("    " + page.paint("dim", cut(shown, page.width - 4)))
    observed = tool.get("observations")
    for text in observed if isinstance(observed, list) else ():
        page.block(f"observed: {_text(text)}", "    ", _RESULT_LINES_MAX, "dim")


def _decided(one: Mapping[str, Any]) -> str:
    """The word, whose it is, and why."""
    for name, said in (("word", "settled"), ("verdict", "decision"), ("state", "approval")):
        if not (word := cell(one.get(name))):
            continue
        by, why = cell(one.get("by")), cell(one.get("note")) or cell(one.get("reason"))
        return f"{said}: {word}" + (f" by {by}" if by else "") + (f": {why}" if why else "")
    return ""


def _text(content: object) -> str:
    """Content as text: blocks that hold none are named."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping) and isinstance(content.get("_artifact"), Mapping):
        named = content["_artifact"]
        told = f"[artifact {named.get('sha256')}, {named.get('size')} bytes, in part]"
        return f"{told}\n{named.get('preview') or ''}"
    if not isinstance(content, list):
        return "" if content is None else plain(content)
    return "\n".join(piece for block in content if (piece := _block(block)))


def _block(block: object) -> str:
    if not isinstance(block, Mapping):
        return block if isinstance(block, str) else plain(block)
    kind = block.get("type")
    for key in ("text", "thinking"):
        if isinstance(block.get(key), str):
            return f"({kind}) {block[key]}" if key == "thinking" else str(block[key])
    if kind in _CALLS:
        return ""  # the calls of the message say it
    return f"[{kind}]"


def _time(at_ms: object) -> str:
    if not isinstance(at_ms, (int, float)) or isinstance(at_ms, bool) or at_ms <= 0:
        return ""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # an application's clock can say anything
        return ""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def _duration(took_ms: object) -> str:
    if not isinstance(took_ms, (int, float)) or not 0 <= took_ms < 1e15:
        return ""  # not over yet, or two clocks
    seconds = took_ms / 1000
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
