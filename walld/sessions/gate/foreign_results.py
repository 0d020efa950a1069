"""Results of a call that came with an import from another branch of history.

Owns: which calls of a copy only such words have settled. Refuses: what is told of them
(`imported.py`).

A source knows that a call may have run where it has the start, or what told of it, or where its own
gate doubted the call when the word was said. A fork that was made before the start, and went its
own way, says nothing of the start: there the call did not run, or ran on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from walld.sessions.gate.possibly_run import Lost, elsewhere, gave_no_result
from walld.sessions.gate.turn_history import History, history_of
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import CAME_FROM, Event, check_payload
from walld.sessions.state.tools import named_call, tool_state_of

__all__ = ["settled_by_strangers"]

_SETTLES: Final = frozenset(("denied", "finished", "failed", "observed"))


def settled_by_strangers(source: Sequence[Event], copy: Sequence[Event]) -> list[CallAccount]:
    """Calls of the copy that words of the source alone have settled, which did not know of them."""
    words = _Words(source, copy)
    strange, asked = list[CallAccount](), dict[str, str]()
    for one in history_of(copy).tools:
        told = words.of(one)
        if told is True:
            strange.append(one)
        elif told:
            asked[one.begun.id] = told
            strange.append(one)
    if asked:
        known = _doubted(source, asked) | (asked.keys() - _doubted(copy, asked))
        strange = [one for one in strange if one.begun.id not in known]
    return strange + [call for call in elsewhere(copy) if words.are_strange_elsewhere(call)]


class _Words:
    """What was said in the copy, by whom."""

    def __init__(self, source: Sequence[Event], copy: Sequence[Event]) -> None:
        self._came = {event.id for event in source}
        self._ids = {event.seq: event.id for event in copy}
        self._lost = Lost()
        self._by_name: dict[tuple[object, object], list[Event]] = {}
        self._told: dict[str, list[Event]] = {}
        for event in copy:
            self._lost.take(event)
            if check_payload(event.type, event.payload) is not None:
                continue
            if event.type == "observation" and "of_call" in event.payload:
                key = event.payload.get("of_turn"), event.payload.get("of_call")
                self._by_name.setdefault(key, []).append(event)
            for name in event.payload.get("started", ()) if event.type in CAME_FROM else ():
                self._told.setdefault(name, []).append(event)
        self._lost.end(0)

    def of(self, tool: CallAccount) -> bool | str:
        """Whether strangers have settled a call that begins in the copy; or the id of their word,
        where the source knew if its own gate doubted the call then, and the copy's did as well.
        """
        by_name = self._by_name.get((tool.turn, tool.call_id), ())
        own_words = (one for one in tool.words if tool_state_of(one.type, one.payload) in _SETTLES)
        words = [*own_words, *(event for event in by_name if event.seq > tool.begun.seq)]
        strange = min((event.seq for event in words if event.id in self._came), default=0)
        if not strange:
            return False
        own = max((event.seq for event in words if event.id not in self._came), default=0)
        started, told = tool.state.seqs.get("started", 0), self._told.get(tool.begun.id, [])
        if started and self._ids[started] not in self._came:
            return own < started
        if any(own < event.seq and not self._knows(event) for event in told):
            return True
        if started or told or own or not self._lost.between(tool.begun.seq, strange):
            return False
        return self._ids[strange]

    def are_strange_elsewhere(self, call: CallAccount) -> bool:
        """Of a call that the copy was told of. intent: what told."""
        observed = call.state.seqs.get("observed", 0)
        is_strange = observed > 0 and self._ids[observed] in self._came
        return is_strange and not self._knows(call.begun)

    def _knows(self, told: Event) -> bool:
        """The source has what told, or all that the teller had."""
        return told.id in self._came or told.payload.get("as_of") in self._came


def _doubted(events: Sequence[Event], asked: Mapping[str, str]) -> set[str]:
    """Those of the calls, by intent, that may have run as far as was known when a word was said.

    asked: intent -> the word.
    """
    words: dict[str, list[str]] = {}
    for intent, word in asked.items():
        words.setdefault(word, []).append(intent)
    account, lost, begun = History(), Lost(), dict[str, CallAccount]()
    doubted: set[str] = set()
    for event in events:
        lost.reach(event.seq - 1)  # what is lost right before a word was not known to who said it
        doubted |= {
            intent
            for intent in words.pop(event.id, ())
            if (tool := begun.get(intent)) is not None and _is_doubted(tool, lost, account)
        }
        account.take(event)
        lost.take(event)
        key = named_call(event)
        if key is not None and (tool := account.calls.newest(*key)) is not None:
            begun[tool.begun.id] = tool
    return doubted


def _is_doubted(tool: CallAccount, lost: Lost, account: History) -> bool:
    return tool.outcome == "unknown" or (gave_no_result(tool) and lost.may_have_run(tool, account))
