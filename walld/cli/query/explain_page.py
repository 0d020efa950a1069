"""A session explained, as text for a person: four questions, in the order in which they are asked.

Owns: how the answer is drawn. Refuses: asking for it, printing it, the width of the terminal (an
argument), lines and columns (`page.py`).

Invariant: what an application or a model said never reaches the terminal unescaped. A command is
never cut or wrapped: it is there to be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from walld.cli.page import Page, Word, cell, cut, maps, plain
from walld.cli.show import CUT_OFF, time
from walld.escape import escaped_line

__all__ = ["render_explanation"]

_ROWS_MAX: Final = 20
"""Of one heading: the newest."""
_LINES_MAX: Final = 8
_SAYING_LINES_MAX: Final = 40
_STATES: Final = {
    "live": ("green", "a process works on it now"),
    "waits": ("yellow", "it waits for a yes or a no"),
    "blocked": ("red", "it must not go on before what stands in the way is settled"),
    "cut": ("yellow", "it stopped before its end"),
    "done": ("green", "nothing is to be done"),
}
_BOUNDARIES: Final = {
    "before_intent": "before any call",
    "intended": "at a call that did not start",
    "approved": "at a call that was allowed, and did not start",
    "started": "within a call",
    "finished": "behind a call whose result the model had not seen",
    "observed": "behind a call",
    "idle": "between two turns",
    "answered": "behind its answer",
}
_OUTCOMES: Final = {"done": "green", "failed": "red", "timeout": "red", "cancelled": "yellow"}
_GONE: Final = {
    "expired": "it went for its age, and nobody has its words",
    "answered": "it answered, and was resolved: only its program has its words",
    "taken": "it was resolved, or released without an answer: if it said anything, only its program"
    " may have that",
}
_TURNS: Final = {"completed": "green", "interrupted": "red"}


def render_explanation(told: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """told: the view `explain`."""
    drawer = _Drawer(Page(width, colour), told)
    drawer.draw()
    return "\n".join(drawer.page.lines)


class _Drawer:
    def __init__(self, page: Page, told: Mapping[str, Any]) -> None:
        self.page = page
        self._told = told

    def draw(self) -> None:
        """All of it. Of the four questions each has an answer; another heading without rows is left
        out.
        """
        told = self._told
        self._head()
        self._rows("ASKED", told["asked"], self._asked)
        self._rows("DONE", told["done"], self._call, "no call that is known to have run")
        self._rows("REFUSED", told["refused"], self._refused)
        self._rows("REPLACED by a later call", told["replaced"], self._replaced)
        self._rows("VERIFIED", told["verified"], self._verified)
        self._spent(told["spent"])
        self._rows("THE MODEL FAILED", told["model_failed"], self._failed)
        elsewhere = maps(told.get("said_elsewhere"))
        nothing = "" if elsewhere else "nothing: each reply of a turn is in the session"
        self._rows("WAS SAYING", [*elsewhere, *told["saying"]], self._saying, nothing)
        self._rows("RUNS NOW", told["running"], self._unknown)
        known = "of each call it is known whether it ran"
        if any(one["outcome"] == "unknown" for one in told["replaced"]):
            known = "of each call that is open; what was replaced may have run, too"
        self._rows("UNKNOWN", told["unknown"], self._unknown, known)
        self._rows("WAITS to be said", told["queued"], self._queued)
        self._rows("NOTES", told["notes"], self._note)
        self._may(told["may"])

    def _head(self) -> None:
        told, gate = self._told, self._told["gate"]
        colour, means = _STATES.get(told["state"], (None, ""))
        first: list[Word] = [("bold", f"session {cell(told['session'])}:")]
        first.append((colour, cell(told["state"])))
        self.page.words(first, [(None, means)])
        stopped = _BOUNDARIES.get(gate["boundary"], cell(gate["boundary"]))
        at = f"resume-check: {cell(gate['status'])}; it stands {stopped}"
        turn = f"turn {cell(gate['turn'])}" if gate["turn"] is not None else ""
        self.page.words([("dim", at)], [("dim", turn)], "  ")
        if (lifecycle := told["lifecycle"]) is not None and lifecycle["is_said"]:
            why = f": {cell(plain(lifecycle['reason']))}" if lifecycle["reason"] else ""
            self._dim(f"the program said: {cell(lifecycle['state'])}{why}", "  ")

    def _rows(
        self,
        heading: str,
        rows: Sequence[Mapping[str, Any]],
        draw: Callable[[Mapping[str, Any]], None],
        nothing: str = "",
    ) -> None:
        """The newest rows. nothing: what is said where there is none."""
        if not rows and not nothing:
            return
        self._heading(heading)
        if not rows:
            self._dim(nothing, "  ")
        if (more := len(rows) - _ROWS_MAX) > 0:
            self._dim(f"... {more} earlier: --json has them", "  ")
        for row in rows[-_ROWS_MAX:]:
            draw(row)

    def _heading(self, text: str) -> None:
        self.page.line()
        self.page.line(self.page.paint("bold", text))

    def _dim(self, text: str, indent: str) -> None:
        shown = cut(text, self.page.width - len(indent))
        self.page.line(indent + self.page.paint("dim", shown))

    def _asked(self, row: Mapping[str, Any]) -> None:
        state = cell(row["state"]).replace("_", " ")
        reason = f" ({reason})" if (reason := cell(row["reason"])) else ""
        first: list[Word] = [
            (None, _at(row["at_ms"])),
            (_TURNS.get(state, "yellow"), state + reason),
        ]
        more: list[Word] = [("dim", f"turn {cell(row['turn'])}" if row["turn"] else "")]
        more.append(("dim", f"retry of {cell(row['retry_of'])}" if row["retry_of"] else ""))
        more.append(("dim", cell(row["gone"])))
        more.append(("dim", "" if row["on_path"] else "on another branch"))
        self.page.words(first, more, "  ")
        self._text(row["content"], row["content_cut"], "    ", "cyan")
        is_answer = row["answer"] is not None
        words = row["answer"] if is_answer else row.get("said")  # an older daemon does not say
        if words is not None:
            marks = [("cut off", row["answer_partial"]), ("edited since", row.get("answer_edited"))]
            verb = "answered" if is_answer and not row["answer_partial"] else "said"
            self._dim(", ".join([verb, *(word for word, so in marks if so)]) + ":", "    ")
            self._text(words, row["answer_cut" if is_answer else "said_cut"], "      ")
        if gone := cell(row.get("answer_gone")):  # an older daemon does not say
            self._dim(f"(an answer was {gone})", "    ")

    def _call(self, row: Mapping[str, Any]) -> None:
        outcome = cell(row["outcome"])
        more: list[Word] = [(_OUTCOMES.get(outcome, "yellow"), outcome.replace("_", " "))]
        more.append((None, _took(row["duration_ms"])))
        self._named(row, more)
        if row["result"] is not None:
            self._value("=> ", row["result"], row["result_cut"])
        for one in row["observations"]:
            if one and one != row["result"]:
                self._value("seen: ", one, None)
        if row["files"]:
            self._dim(f"wrote {', '.join(map(cell, row['files']))}", "      ")
        if row["settled"] is not None:
            by = f" by {cell(row['settled_by'])}" if row["settled_by"] else ""
            note = f": {cell(row['note'])}" if row["note"] else ""
            self._dim(f"settled: {cell(row['settled'])}{by}{note}", "      ")

    def _named(self, row: Mapping[str, Any], more: list[Word]) -> None:
        """When, the call with its arguments, and what else."""
        at = _at(row["since_ms"] if "since_ms" in row else row["at_ms"])
        self.page.words([(None, at), ("bold", cell(row["tool"]))], more, "  ")
        if row["arguments"] is not None:
            self._value("", row["arguments"], row["arguments_cut"])

    def _refused(self, row: Mapping[str, Any]) -> None:
        self._named(row, [("red", _denied(row))])
        if row["denied_because"]:
            self._value("because: ", row["denied_because"], None)

    def _queued(self, row: Mapping[str, Any]) -> None:
        self.page.words([(None, _at(row["at_ms"])), ("bold", cell(row["kind"]))], [], "  ")
        self._text(row["content"], row["content_cut"], "      ")

    def _replaced(self, row: Mapping[str, Any]) -> None:
        may = ", and it may have run" if row["outcome"] == "unknown" else ""
        self._named(row, [("yellow", f"by call {cell(row['replaced_by'])}{may}")])

    def _verified(self, row: Mapping[str, Any]) -> None:
        before = f"({row['before']} before it)" if row["before"] else ""
        self.page.words([(None, _at(row["at_ms"]))], [("dim", before)], "  ")
        self._value("", row["said"], None)

    def _spent(self, spent: Mapping[str, Any]) -> None:
        if spent["budget"] is None and not spent["model_calls"]:
            return
        self._heading("SPENT")
        if spent["budget"] is not None:
            self._value("budget: ", spent["budget"], None, "  ")
        if spent["exhausted"]:
            self.page.line("  " + self.page.paint("red", "the budget is used up"))
        if spent["usage"]:
            self._value("tokens: ", spent["usage"], None, "  ")
        if spent["models"]:
            self._value("models: ", ", ".join(map(str, spent["models"])), None, "  ")

    def _failed(self, row: Mapping[str, Any]) -> None:
        kind = f" ({kind})" if (kind := cell(row["error_kind"])) else ""
        more: list[Word] = [("red", f"{cell(row['error_class'])}{kind}")]
        more.append(("dim", f"request {cell(row['request_id'])}" if row["request_id"] else ""))
        more.append(("dim", f"turn {cell(row['turn'])}" if row["turn"] else ""))
        self.page.words([(None, _at(row["at_ms"])), ("bold", cell(row["model"]))], more, "  ")

    def _saying(self, row: Mapping[str, Any]) -> None:
        if (gone := _GONE.get(row.get("how", ""))) is not None:
            turn = f", turn {cell(row['turn'])}" if row["turn"] is not None else ""
            text = f"reply {cell(row['stream_id'])}{turn}: {gone}"
            self.page.block(text, "  ", _LINES_MAX, "dim")
            return
        speaks = row["status"] == "live" and row["owner_alive"]
        is_cut = row["partial"] or not row.get("ended", True)  # an older daemon does not say
        whole = "cut" if row["partial"] else CUT_OFF if is_cut else "whole"
        whole = "so far" if speaks else whole
        whys = () if speaks else ("lost_reason", "partial_reason")
        why = next((cell(row[one]) for one in whys if row[one]), "")
        owner = "its process lives" if row["owner_alive"] else "its process is gone"
        first: list[Word] = [(None, _at(row["last_event_at_ms"]))]
        first.append(("yellow" if is_cut else "green", whole + (f" ({why})" if why else "")))
        first.append((None, f"{len(row['text'])} characters"))
        first.append((None, owner))
        turn = f", turn {cell(row['turn'])}" if row["turn"] is not None else ""
        self.page.words(first, [("dim", f"reply {cell(row['stream_id'])}{turn}")], "  ")
        if row["error"] is not None:
            self._value("error: ", row["error"]["message"], None)
        if row["doubt"] is not None:
            self._value("there may be more: ", row["doubt"], None)
        if row["reasoning"]:
            self._dim("(reasoning)", "    ")
            self._last_lines(row["reasoning"], "    ", _LINES_MAX, "dim")
        self._last_lines(row["text"], "    ", _SAYING_LINES_MAX)
        for one in row["calls"]:
            arguments = cell(one["arguments"])
            outcome = "no result" if one["outcome"] == "unknown" else cell(one["outcome"])
            self._dim(f"-> {cell(one['tool'])}({arguments}): {outcome}", "    ")

    def _unknown(self, row: Mapping[str, Any]) -> None:
        more: list[Word] = [("yellow", f"effect: {cell(row['side_effect'])}")]
        more.append(("dim", f"call {cell(row['call_id'])}"))
        if row["child"] is not None:
            more.append(("dim", f"the work of session {cell(row['child'])}"))
        if row.get("denied_by") is not None:
            more.append(("red", f"{_denied(row)}; it may have run before that"))
        self._named(row, more)
        if row.get("denied_because"):
            self._value("because: ", row["denied_because"], None)

    def _note(self, row: Mapping[str, Any]) -> None:
        at = _at(row["at_ms"])
        self.page.words([(None, at), ("yellow", cell(row["kind"]))], [], "  ")
        self.page.block(_NOTES[row["kind"]](row), "      ", _LINES_MAX, "dim")

    def _may(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._heading("WHAT YOU MAY DO NOW")
        if not rows:
            self.page.line("  nothing is open")
        for row in rows:
            about = ""
            if row["tool"] is not None:
                about = f"{cell(row['tool'])} (call {cell(row['call_id'])}): "
            elif row["stream_id"] is not None and row["action"] == "adopt":
                about = f"reply {cell(row['stream_id'])}: "
            at = _at(row["since_ms"]) if row["action"] == "wait" else ""
            since = f" (since {at})" if at else ""
            self.page.block(f"* {about}{row['what']}{since}", "  ", _LINES_MAX, "yellow")
            if row["asked_because"]:
                self._value("because: ", row["asked_because"], None)
            if (
                row["action"] in ("decide", "run") or row["code"] == "never_started"
            ):  # it stands under no other heading
                effect, arguments = f"effect: {row['side_effect']}", row["arguments"]
                mark = effect if arguments is None else f"{effect}; "
                self._value(mark, "" if arguments is None else arguments, row["arguments_cut"])
            typed = [(escaped_line(one["command"]), one["what"]) for one in maps(row["commands"])]
            width = max((len(command) for command, _ in typed), default=0)
            for command, what in typed:
                self.page.line(f"      {command:<{width}}" + self.page.paint("dim", f"  # {what}"))
            if row["python"] is not None:
                self.page.line(f"      python: {escaped_line(row['python'])}")

    def _text(self, text: str, whole: int | None, indent: str, colour: str | None = None) -> None:
        self.page.block(text, indent, _LINES_MAX, colour)
        if whole is not None:
            self._dim(f"... {whole} characters in all", indent)

    def _last_lines(self, text: str, indent: str, most: int, colour: str | None = None) -> None:
        """The end of it, which is where it stopped."""
        page = Page(self.page.width, self.page.colour)
        page.block(text, indent, len(text) + 1, colour)
        if (more := len(page.lines) - most) > 0:
            self._dim(f"... {more} lines before", indent)
        self.page.lines += [self.page.margin + one for one in page.lines[-most:]]

    def _value(self, mark: str, value: object, whole: int | None, indent: str = "      ") -> None:
        """In one or a few lines."""
        text = value if isinstance(value, str) else plain(value)
        self.page.block(mark + text, indent, _LINES_MAX, "dim")
        if whole is not None:
            self._dim(f"... {whole} characters in all", indent)


def _denied(row: Mapping[str, Any]) -> str:
    who = "by the user" if row["denied_by"] == "user" else "by a policy"
    name = f" ({cell(row['denied_by_name'])})" if row["denied_by_name"] else ""
    return f"denied {who}{name}"


def _of_fork(row: Mapping[str, Any]) -> str:
    at = f" at entry {row['at']}" if row.get("at") else ""
    return f"it was forked from session {row['session']}{at}"


def _of_import(row: Mapping[str, Any]) -> str:
    missing = row.get("missing")
    lost = f", which lacked events {plain(missing)}" if missing else ""
    return f"it was imported from a file{lost}"


def _of_expired(row: Mapping[str, Any]) -> str:
    said = f"{row.get('characters')} characters and {row.get('calls')} calls"
    return f"reply {row.get('stream')} went for its age, and nobody had it: {said}"


def _of_compaction(row: Mapping[str, Any]) -> str:
    return (
        f"the model sees this for all before {row['first_kept'] or row['entry']}: {row['summary']}"
    )


def _of_damage(row: Mapping[str, Any]) -> str:
    first, last = row["first_seq"], row["last_seq"]
    cost = f"events {first} to {last} cannot be read" if first <= last else "none is missing"
    return f"its file is damaged ({row['why']}): {cost}"


_NOTES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "fork": _of_fork,
    "import": _of_import,
    "expired": _of_expired,
    "compaction": _of_compaction,
    "damage": _of_damage,
}


def _at(at_ms: object) -> str:
    return time(at_ms / 1000) if isinstance(at_ms, int) and at_ms > 0 else ""


def _took(took_ms: object) -> str:
    if not isinstance(took_ms, int):
        return ""
    return f"{took_ms} ms" if took_ms < 10_000 else f"{took_ms / 1000:.0f} s"
