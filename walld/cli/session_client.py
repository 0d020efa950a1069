"""Calls and views of sessions over the command line's one connection.

Owns: running the client's own steps (`walld_client.steps`) here, another user's where `--uid` names
one; pages of events; saying that a session's file is damaged, or that nothing is kept. Refuses: the
socket (`client.py`), what the calls mean (the client's modules), printing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from walld_client.errors import Refused
from walld_client.limits import EVENTS_PAGE
from walld_client.query.requests import decode_page, decode_view
from walld_client.steps import Steps
from walld_client.steps import run as run_steps
from walld_client.wire import messages as wire

from walld.cli.client import Daemon, Declined
from walld.cli.exit_codes import NOTHING, complain
from walld.errors import WalldError
from walld.ledger.line import line_seq

__all__ = ["SessionClient", "nothing_kept", "say_breaks"]

_T = TypeVar("_T")
_log = logging.getLogger("walld")


class SessionClient:
    """Questions about the sessions of one user: who asks, or `uid`."""

    def __init__(self, daemon: Daemon, uid: int | None) -> None:
        self._daemon = daemon
        self._uid = uid
        self.breaks: dict[tuple[int, str], dict[str, Any]] = {}
        """Where the session's file is damaged, as far as what was read so far met it."""
        if not _log.handlers:  # a command says itself what the client would log of damage
            _log.addHandler(logging.NullHandler())

    def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        """The answer's msgpack; what the daemon declines as the client's Refused."""
        request: Any = make(self._daemon.next_id())
        if self._uid is not None and "uid" in request.__struct_fields__:
            request = msgspec.structs.replace(request, uid=self._uid)
        try:
            return self._daemon.ask(request)
        except Declined as declined:
            error = declined.error
            raise Refused(error.code, error.got, error.limit, error.message) from None

    def reconnect(self) -> None:
        """Raises Unavailable where no daemon is there."""
        self._daemon.reconnect()

    def run(self, steps: Steps[_T]) -> _T:
        """A call of the client's."""
        return run_steps(self, steps)

    def view(self, session_id: str, name: str, **arguments: Any) -> Any:
        """A view of a session as JSON gives it; None where it was never written."""
        given = json.dumps(arguments).encode()
        told, breaks = decode_view(
            self.ask(lambda number: wire.Project(number, session_id, name, given, breaks=True))
        )
        self._meet(breaks)
        return None if told is None else json.loads(told)

    def is_there(self, session_id: str) -> bool:
        """It was written. Costs a look at its beginning, however long it is."""
        return self._page(session_id, 0, 1) is not None

    def lines(self, session_id: str, after: int = 0) -> Iterator[bytes] | None:
        """Lines as they are kept, a page at a time; None where it was never written.

        Raises WalldError behind a page, where the session is another one by then.
        """
        first = self._page(session_id, after)
        return None if first is None else self._pages(session_id, first)

    def first_line(self, session_id: str) -> bytes | None:
        """The first of them that can be read."""
        return next(iter(self._page(session_id, 0, 1) or ()), None)

    def _pages(self, session_id: str, page: list[bytes]) -> Iterator[bytes]:
        yield from page
        while len(page) == EVENTS_PAGE:
            # The last one comes once more: so the next page is seen to be of the same session.
            last = page[-1]
            page = self._page(session_id, line_seq(last) - 1) or []
            if page[:1] != [last]:
                raise WalldError(
                    f"session {session_id} was deleted while it was read: this is the beginning of"
                    f" what it was, up to seq {line_seq(last)}"
                )
            yield from page[1:]

    def _page(self, session_id: str, after: int, limit: int = EVENTS_PAGE) -> list[bytes] | None:
        lines, breaks = decode_page(
            self.ask(lambda number: wire.Events(number, session_id, after, limit, breaks=True))
        )
        self._meet(breaks)
        return lines

    def _meet(self, breaks: list[dict[str, Any]]) -> None:
        self.breaks |= {(one["offset"], one["why"]): one for one in breaks}


def say_breaks(asking: SessionClient, session_id: str) -> None:
    """On stderr, where the session's file is damaged: what was shown is the rest of it (P9)."""
    for _, broken in sorted(asking.breaks.items()):
        first_seq, last_seq = broken["first_seq"], broken["last_seq"]
        cost = f"events {first_seq} to {last_seq} are missing"
        if first_seq > last_seq:
            cost = f"no event is missing before {first_seq}"
        complain(f"session {session_id}: {broken['why']} at {broken['offset']}: {cost}")


def nothing_kept(session_id: str) -> int:
    """The exit code of it. What an id without a log had is gone with its replies."""
    complain(
        f"there is no session {session_id}: it never was, or it had no log, and its replies were"
        " resolved or went for their age"
    )
    return NOTHING
