"""Replies of responses that were cut and may be taken up again.

Owns: how long such a reply is open. Refuses: what goes on with what (`ResponsesFold.goes_on`).

A response that runs in the background at OpenAI can be asked for again, behind the last event that
was heard, and a reply that has ended takes no more. So the reply of one whose body was cut stays
open: until it is taken up, its session's next model call begins, the program releases it, or nobody
has the hook any more. Then it ends as what is known of the cut says (`Stream.failure`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from walld_client.link import process

__all__ = ["Cut", "CutResponses"]

_WAITING_MAX = 64
"""Of a hook; the one that has waited longest ends."""


class Cut(Protocol):
    """What has such a reply."""

    @property
    def session_id(self) -> str | None:
        """The reply's."""

    def is_continued_by(self, item: Any) -> bool:
        """Does a body that begins with this event go on with it?"""

    def let_go(self) -> None:
        """Nobody takes it up again: its reply ends."""


_T = TypeVar("_T", bound=Cut)


class CutResponses(Generic[_T]):
    """Those of one hook, by the response's id."""

    def __init__(self) -> None:
        self._mutex = process.Mutex()
        self._waiting: OrderedDict[str, _T] = OrderedDict()

    def wait(self, response_id: str, cut: _T) -> None:
        """It may be taken up again."""
        with self._mutex.lock:
            ended = [self._waiting.pop(response_id, None)]
            self._waiting[response_id] = cut
            if len(self._waiting) > _WAITING_MAX:
                ended.append(self._waiting.popitem(last=False)[1])
        _let_go(ended)

    def take(self, response_id: str, item: Any) -> _T | None:
        """The one that a body which begins with `item` goes on with."""
        with self._mutex.lock:
            found = self._waiting.get(response_id)
            if found is None or not found.is_continued_by(item):
                return None
            return self._waiting.pop(response_id)

    def begun(self, session_id: str) -> None:
        """Another model call of the session: what waits there is not taken up."""
        with self._mutex.lock:
            names = [name for name, one in self._waiting.items() if one.session_id == session_id]
            ended = [self._waiting.pop(name) for name in names]
        _let_go(ended)


def _let_go(ended: Iterable[Cut | None]) -> None:
    """Outside of the lock: it may send."""
    for one in ended:
        if one is not None:
            one.let_go()
