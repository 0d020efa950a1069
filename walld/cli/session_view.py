"""A session's transcript and tree, as text for a person.

Owns: how turns, messages, tools and branches are drawn. Refuses: asking for them, printing them,
the width of the terminal (an argument).

Invariant: what an application or a model said never reaches the terminal unescaped. Never raises
for a field that is missing or of another type: a view shows what there is.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from walld.escape import escaped, escaped_line

__all__ = ["render_show", "render_tree"]

_WIDTH_MIN: Final = 30
_TEXT_COLUMNS_MIN: Final = 8
"""Of an entry in the tree; a shorter beginning says nothing."""
_LINES_MAX: Final = 40
_RESULT_LINES_MAX: Final = 12
"""Of one message, and of what a tool answered; the whole is what `messages` and `export` give."""
_COLOURS: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_STATES: Final = {
    "completed": "green",
    "interrupted": "red",
    "unknown": "red",
    "failed": "red",
    "denied": "red",
    "done": "green",
    "finished": "green",
    "observed": "green",
}
_CALLS: Final = ("tool_use", "toolCall")
_ROLES: Final = {"user": "cyan", "assistant": "bold", "tool": "dim", "system": "dim"}


def render_show(transcript: object, session_id: str, *, width: int, colour: bool) -> str:
    """The transcript: turns with their messages and tools, and between them what is of no turn."""
    page = _Page(max(width, _WIDTH_MIN), colour)
    page.line(page.paint("bold", f"session {_cell(session_id)}"))
    number = 0
    for part in _maps(transcript):
        page.line()
        if part.get("turn_id") is None:
            page.line(page.paint("dim", "outside of any turn"))
        else:
            number += 1
            _turn(page, number, part)
        tools = _maps(part.get("tools"))
        told = {tool.get("call_id") for tool in tools if isinstance(tool.get("call_id"), str)}
        for said in _maps(part.get("messages")):
            # A call that was journalled stands below, with how it ended.
            _message(page, said, told)
        for tool in tools:
            _tool(page, tool)
    if len(page.lines) == 1:
        page.line(page.paint("dim", "nothing was said"))
    return "\n".join(page.lines)


def render_tree(tree: dict[str, Any], *, width: int) -> str:
    """One line an entry, a branch where an entry has several below it; the leaf is marked.

    A line of entries without a branch goes straight down: only branches are indented, so that a
    session of thousands of entries stays readable. Where a line is too long its text is cut, never
    the id: that is what `fork --at` and `messages --branch` take.
    """
    nodes = {_id(node): node for node in _maps(tree.get("nodes"))}
    below: dict[str | None, list[str]] = {}
    for id_, node in nodes.items():
        parent = node.get("parent")
        known = isinstance(parent, str) and parent in nodes and parent != id_
        below.setdefault(parent if known else None, []).append(id_)
    leaf = tree.get("leaf")
    lines = []
    drawn: set[str] = set()
    # A stack: a session is deeper than Python's. (entry, its branch mark, indent of what is below)
    stack = _branches(below.get(None, []), "")
    while stack:
        id_, mark, indent = stack.pop()
        if id_ in drawn:
            continue
        drawn.add(id_)
        lines.append(mark + _node(nodes[id_], id_ == leaf, width - len(mark)))
        children = below.get(id_, [])
        if len(children) == 1:
            stack.append((children[0], indent, indent))
        else:
            stack += _branches(children, indent)
    lost = [_node(nodes[id_], id_ == leaf, width) for id_ in nodes if id_ not in drawn]
    if lost:
        lines += ["entries that hang on each other:", *lost]
    if leaf is None:
        lines.append("the leaf is before the first entry" if lines else "no entries")
    return "\n".join(lines)


def _branches(ids: list[str], indent: str) -> list[tuple[str, str, str]]:
    """The entries below one, last first, as a stack takes them."""
    if len(ids) == 1 and not indent:
        return [(ids[0], "", "")]
    found = []
    for at, id_ in enumerate(ids):
        last = at == len(ids) - 1
        mark, more = ("└─ ", "   ") if last else ("├─ ", "│  ")
        found.append((id_, indent + mark, indent + more))
    return found[::-1]


def _node(node: Mapping[str, Any], is_leaf: bool, width: int) -> str:
    type_ = _cell(node.get("type"))
    begin = _cell(node.get("role")) if type_ == "message" and node.get("role") else type_
    end = [f"[{label}]"] if (label := _cell(node.get("label"))) else []
    end.append(f"({_cell(node.get('id'))})")
    if is_leaf:
        end.append("<- leaf")
    left = width - _columns(" ".join((begin, *end))) - 1
    text = _cell(_in_one_line(node.get("text")))
    words = [begin, _cut(text, left) if left >= _TEXT_COLUMNS_MIN else "", *end]
    return " ".join(word for word in words if word)


def _in_one_line(text: object) -> object:
    return " ".join(text.split()) if isinstance(text, str) else text


_Word = tuple[str | None, str]
"""(colour, text); no text is no word."""


class _Page:
    """Lines so far, and how wide and colourful they may be."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = width
        self.colour = colour
        self.lines: list[str] = []

    def line(self, text: str = "") -> None:
        self.lines.append(text)

    def paint(self, colour: str | None, text: str) -> str:
        if not self.colour or colour is None or not text:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"

    def words(self, first: list[_Word], more: list[_Word]) -> None:
        """Words two spaces apart; `more` in a line of its own where the terminal is too narrow."""
        shown, rest = (
            "  ".join(self.paint(colour, text) for colour, text in words if text)
            for words in (first, more)
        )
        if _columns("  ".join(text for _, text in (*first, *more) if text)) <= self.width:
            self.line("  ".join(filter(None, (shown, rest))))
        else:
            self.line(shown)
            self.line("  " + rest)

    def block(self, text: str, indent: str, most: int, colour: str | None = None) -> None:
        """Text of a stranger, wrapped; what is longer than `most` lines is cut and says so."""
        if not text:
            return
        lines = [
            piece
            for line in escaped(text).expandtabs(4).split("\n")
            for piece in _wrapped(line, self.width - len(indent))
        ]
        for line in lines[:most]:
            self.line((indent + self.paint(colour, line)).rstrip())
        if len(lines) > most:
            self.line(indent + self.paint("dim", f"... {len(lines) - most} more lines"))


def _turn(page: _Page, number: int, turn: Mapping[str, Any]) -> None:
    """How it ended, when it began, how long it took; its id, and what else there is to say."""
    state = _cell(turn.get("state")) or "unknown"
    reason = f" ({reason})" if (reason := _cell(turn.get("reason"))) else ""
    first: list[_Word] = [("bold", f"turn {number}")]
    first.append((_STATES.get(state, "yellow"), state + reason))
    first.append((None, _time(turn.get("submitted_at_ms"))))
    first.append((None, _duration(turn.get("duration_ms"))))
    more: list[_Word] = [("dim", _cell(turn.get("turn_id")))]
    if retried := _cell(turn.get("retry_of")):
        more.append(("dim", f"retry of {retried}"))
    if ends := turn.get("collisions"):
        count = len(ends) if isinstance(ends, list) else ends
        more.append(("yellow", f"ended {_cell(count)} times more"))
    if turn.get("on_path") is False:
        more.append(("dim", "on another branch"))
    page.words(first, more)


def _message(page: _Page, said: Mapping[str, Any], told: set[Any]) -> None:
    message = said.get("message")
    if not isinstance(message, Mapping):
        return
    role = _cell(message.get("role")) or "?"
    name = _cell(message.get("name")) or _cell(message.get("tool_call_id"))
    head = f"{role} {name}".rstrip() if role == "tool" else role
    notes = [
        word
        for word, is_so in (
            ("partial", message.get("_partial")),
            ("recovered", message.get("_wal_recovered")),
            ("on another branch", said.get("on_path") is False),
        )
        if is_so
    ]
    head += f" ({', '.join(notes)})" if notes else ""
    page.line("  " + page.paint(_ROLES.get(role), head))
    most, colour = (_RESULT_LINES_MAX, "dim") if role == "tool" else (_LINES_MAX, None)
    page.block(_text(message.get("content")), "    ", most, colour)
    content = message.get("content")
    blocks = [one for one in _maps(content) if one.get("type") in _CALLS]
    listed = _maps(message.get("tool_calls"))
    for call in listed or blocks:
        if isinstance(call.get("id"), str) and call["id"] in told:
            continue
        function = call.get("function")
        named = function if isinstance(function, Mapping) else call
        arguments = _cell(named.get("arguments", named.get("input")))
        outcome = _cell(call.get("outcome"))
        line = f"-> {_cell(named.get('name')) or '?'}({arguments})"
        line = _cut(line, page.width - 4 - _columns(outcome) - 2)
        told_of_it = page.paint(_STATES.get(outcome, "yellow"), outcome)
        page.line(("    " + page.paint("yellow", line) + "  " + told_of_it).rstrip())


def _tool(page: _Page, tool: Mapping[str, Any]) -> None:
    """One line: the tool, how it ended, how long it took."""
    outcome = _cell(tool.get("outcome")) or _cell(tool.get("state")) or "unknown"
    words = [
        "  * " + _cut(_cell(tool.get("tool")) or "?", page.width // 2),
        page.paint(_STATES.get(outcome, "yellow"), outcome),
    ]
    state = _cell(tool.get("state"))
    if state and state != outcome:
        words.append(page.paint("dim", state))
    words.append(_duration(tool.get("duration_ms")))
    words.append(page.paint("dim", _cell(tool.get("call_id"))))
    page.line("  ".join(word for word in words if word))
    for name, mark in (("arguments", "("), ("result", "=>")):
        if shown := _cell(tool.get(name)):
            page.line("    " + page.paint("dim", _cut(f"{mark} {shown}", page.width - 4)))


def _text(content: object) -> str:
    """Content as text: blocks that hold none are named."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping) and isinstance(content.get("_artifact"), Mapping):
        named = content["_artifact"]
        told = f"[artifact {named.get('sha256')}, {named.get('size')} bytes, in part]"
        return f"{told}\n{named.get('preview') or ''}"
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content)
    return "\n".join(piece for block in content if (piece := _block(block)))


def _block(block: object) -> str:
    if not isinstance(block, Mapping):
        return block if isinstance(block, str) else json.dumps(block)
    kind = block.get("type")
    for key in ("text", "thinking"):
        if isinstance(block.get(key), str):
            return f"({kind}) {block[key]}" if key == "thinking" else str(block[key])
    if kind in _CALLS:
        return ""  # the calls of the message say it
    return f"[{kind}]"


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Cut at spaces where there are any, by columns of a terminal."""
    while _columns(line) > width:
        ends = accumulate(map(_columns, line))
        fit = next(at for at, columns in enumerate(ends) if columns > width)
        space = line.rfind(" ", 0, fit + 1)
        cut = space if space > fit // 2 else max(fit, 1)
        yield line[:cut].rstrip()
        line = line[cut:].lstrip(" ")
    yield line


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def _cut(text: str, width: int) -> str:
    """At most so many columns, with a sign that there was more."""
    if _columns(text) <= width:
        return text
    return next(_wrapped(text, max(width - 4, 1))) + " ..."


def _cell(value: object) -> str:
    """A value of a stranger in one line; nothing for None."""
    if value is None:
        return ""
    return escaped_line(value if isinstance(value, str) else json.dumps(value))


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


def _id(node: Mapping[str, Any]) -> str:
    id_ = node.get("id")
    return id_ if isinstance(id_, str) else json.dumps(id_)


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
