"""Words about a call that came with an import from another line of history.

Owns: which calls of a copy only such words have settled. Refuses: what is told of them
(`imported.py`).

A source knows that a call may have run where it has the start, or what told of it, or where its own
gate doubted the call when the word was said. A fork that was made before the start, and went its
own way, says nothing of the start: there the call did not run, or ran on its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from walld.sessions.account import ToolAccount, account_of
from walld.sessions.events import CAME_FROM, Event, check_payload
from walld.sessions.losses import as_ended, elsewhere, lost_places, may_have_started

__all__ = ["settled_by_strangers"]


def settled_by_strangers(source: Sequence[Event], copy: Sequence[Event]) -> list[ToolAccount]:
    """Calls of the copy that words of the source alone have settled, which did not know of them."""
    words = _Words(source, copy)
    return [one for one in account_of(copy).tools if words.are_strange(one)] + [
        call for call in elsewhere(copy) if words.are_strange_elsewhere(call)
    ]


class _Words:
    """What was said in the copy, by whom."""

    def __init__(self, source: Sequence[Event], copy: Sequence[Event]) -> None:
        self._source, self._copy = source, copy
        self._came = {event.id for event in source}
        self._ids = {event.seq: event.id for event in copy}
        self._holes = lost_places(copy)
        self._by_name: dict[tuple[object, object], list[Event]] = {}
        self._told: dict[str, list[Event]] = {}
        for event in copy:
            if check_payload(event.type, event.payload) is not None:
                continue
            if event.type == "observation" and "of_call" in event.payload:
                key = event.payload.get("of_turn"), event.payload.get("of_call")
                self._by_name.setdefault(key, []).append(event)
            for name in event.payload.get("started", ()) if event.type in CAME_FROM else ():
                self._told.setdefault(name, []).append(event)

    def are_strange(self, tool: ToolAccount) -> bool:
        """Of a call that begins in the copy."""
        by_name = self._by_name.get((tool.turn, tool.call_id), ())
        words = [*tool.words, *(event for event in by_name if event.seq > tool.intent.seq)]
        strange = min((event.seq for event in words if event.id in self._came), default=0)
        if not strange:
            return False
        own = max((event.seq for event in words if event.id not in self._came), default=0)
        started, told = tool.state.seqs.get("started", 0), self._told.get(tool.intent.id, [])
        if started and self._ids[started] not in self._came:
            return own < started
        if any(own < event.seq and not self._knows(event) for event in told):
            return True
        if started or told or own or not any(tool.intent.seq < at <= strange for at in self._holes):
            return False
        return self._doubted(self._copy, tool, strange) and not self._doubted(
            self._source, tool, strange
        )

    def are_strange_elsewhere(self, call: ToolAccount) -> bool:
        """Of a call that the copy was told of. intent: what told."""
        observed = call.state.seqs.get("observed", 0)
        is_strange = observed > 0 and self._ids[observed] in self._came
        return is_strange and not self._knows(call.intent)

    def _knows(self, told: Event) -> bool:
        """The source has what told, or all that the teller had."""
        return told.id in self._came or told.payload.get("as_of") in self._came

    def _doubted(self, events: Sequence[Event], tool: ToolAccount, word: int) -> bool:
        """It may have run, as far as was known when the word, of that seq, was said."""
        before: list[Event] = []
        for event in events:
            if event.id == self._ids[word]:
                break
            before.append(event)
        account, before = account_of(before), as_ended(before)
        return tool.intent.id in may_have_started(account, before) or any(
            one.intent.id == tool.intent.id and one.outcome == "unknown" for one in account.tools
        )
