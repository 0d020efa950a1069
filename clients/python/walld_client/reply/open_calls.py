"""Tool calls of a reply that have no result yet.

Owns: which of them a result belongs to, without a call id or by the id that a provider gave to
several; by which seq a call began, as whoever reads the reply counts (an id that is said anew
behind a step, the provider's finish, its call's result or a retry is another call). Refuses: what a
call or a result says.
"""

from __future__ import annotations

__all__ = ["OpenCalls"]

_OPEN_CALLS_MAX = 1024
"""The oldest are forgotten beyond that: a result of theirs must name its call."""


class OpenCalls:
    """Names by call id, in the order of their calls."""

    __slots__ = ("_begun", "_finished", "_given", "_names", "_step")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._begun: dict[str, tuple[int, int]] = {}
        """Call id -> seq and step in which it began; of calls with a result, too."""
        self._step = 0
        self._finished: set[str] = set()
        """Those said before the finish of the step under way."""
        self._given: dict[str, str] = {}
        """The provider's ids of calls that are called otherwise here."""

    def add(self, call_id: str, name: str, seq: int, given: object = None) -> None:
        """A call, or an update of one. given: its provider's id, if that is another one."""
        begun, is_open = self._begun.get(call_id), call_id in self._names
        if begun is None or not is_open or begun[1] != self._step or call_id in self._finished:
            for known in (self._begun, self._names):
                known.pop(call_id, None)
            self._finished.discard(call_id)
            self._begun[call_id] = seq, self._step
            if len(self._begun) > _OPEN_CALLS_MAX:
                del self._begun[next(iter(self._begun))]
        self._names[call_id] = name
        if isinstance(given, str):
            self._given[call_id] = given
        if len(self._names) > _OPEN_CALLS_MAX:
            self.close(next(iter(self._names)))

    def close(self, call_id: str | None) -> str | None:
        """It has its result; the name it was called by."""
        if call_id is None:
            return None
        self._given.pop(call_id, None)
        self._finished.discard(call_id)
        return self._names.pop(call_id, None)

    def next_step(self) -> None:
        """What is said from here on is of the next message."""
        self._step += 1
        self._finished.clear()

    def finish(self) -> None:
        """The provider's answer is over."""
        self._finished.update(self._names)

    def retry(self, *, step: bool) -> None:
        """All calls so far, or those of the step alone, are of an attempt that is over."""
        self._begun = {
            call_id: begun
            for call_id, begun in self._begun.items()
            if step and begun[1] < self._step
        }

    def begun_at(self, call_id: str) -> int | None:
        """The seq by which the newest call of that id began, None where none is known."""
        begun = self._begun.get(call_id)
        return None if begun is None else begun[0]

    def by_id(self, call_id: str, name: str | None) -> str:
        """The call that a result by this id is of: of several the first, of that name if one is."""
        if call_id not in self._given.values():
            return call_id
        calls = [one for one in self._names if call_id in (one, self._given.get(one))]
        named = [one for one in calls if self._names[one] == name]
        return (named or calls)[0]

    def newest(self, name: str | None) -> str | None:
        """The newest open call of that name; without a name the one open call, if it is one."""
        calls = [c for c, n in self._names.items() if name is None or n == name]
        if name is None and len(calls) != 1:
            return None
        return calls[-1] if calls else None
