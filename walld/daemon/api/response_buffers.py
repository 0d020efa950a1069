"""Bounds the memory of answers that a user has not read yet.

Owns: their bytes by uid, and whose are given up. Refuses: sockets (`server.py`).

An answer is as long as what was asked for, and its bytes are the daemon's until its reader takes
them. One reader that does not is nothing; many would fill the memory. So beyond a bound a user's
next long question waits until one of his answers is read, and meanwhile those that nobody reads are
given up, as one is that nobody reads for long. Other users wait for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from walld import limits
from walld.daemon import event_loop

if TYPE_CHECKING:
    import socket
    from types import TracebackType

__all__ = ["HeldAnswer", "HeldAnswers"]

_LOOK_SECONDS = 0.05
"""Between two looks of one that waits for room."""
_BESIDE_BYTES = 32 * limits.KIB
"""What a connection that waits for its reader holds beside its answer: the requests behind it."""


class HeldAnswers:
    """The answers of one daemon that are on their way."""

    def __init__(self) -> None:
        self._users: dict[int, _Held] = {}

    def hold(self, uid: int, count: int) -> HeldAnswer:
        """So many bytes wait for their reader: until this is left.

        Short ones wait for no room; where there is none they take that of who does not read.
        """
        held = self._users.get(uid)
        if held is None:
            held = self._users[uid] = _Held()
        if held.bytes > limits.HELD_ANSWERS_BYTES_MAX:
            held.give_up_one()
        return HeldAnswer(held, count + _BESIDE_BYTES)

    async def room(self, uid: int) -> None:
        """Wait until the user's unread answers leave room for one more."""
        while (held := self._users.get(uid)) and held.bytes > limits.HELD_ANSWERS_BYTES_MAX:
            held.give_up_one()
            await anyio.sleep(_LOOK_SECONDS)


class _Held:
    """Those of one user. answers: in the order in which they were made."""

    __slots__ = ("answers", "bytes")

    def __init__(self) -> None:
        self.answers: dict[HeldAnswer, None] = {}
        self.bytes = 0

    def give_up_one(self) -> None:
        """The oldest of those that nobody reads, or that has been read for too long."""
        now = event_loop.now()
        for one in self.answers:
            is_unread = now > one.moved_at + limits.UNREAD_SECONDS_MAX
            if one.is_kept and (is_unread or now > one.begun_at + limits.READ_SECONDS_MAX):
                one.give_up()
                return


class HeldAnswer:
    """One answer on its way, of `count` bytes."""

    __slots__ = ("_count", "_held", "_scope", "begun_at", "is_kept", "moved_at")

    def __init__(self, held: _Held, count: int) -> None:
        self._held, self._count = held, count
        self._scope: anyio.CancelScope | None = None
        self.begun_at = self.moved_at = event_loop.now()
        self.is_kept = True

    def __enter__(self) -> HeldAnswer:
        self._held.answers[self] = None
        self._held.bytes += self._count
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        del self._held.answers[self]
        self._held.bytes -= self._count

    async def moves(self, peer: socket.socket) -> None:
        """Wait until its reader took something. TimeoutError where it does not, or is given up."""
        with anyio.fail_after(limits.ANSWER_SECONDS_MAX) as self._scope:
            if not self.is_kept:
                self._scope.deadline = event_loop.now()
            await anyio.wait_writable(peer)
        self._scope = None
        self.moved_at = event_loop.now()

    def give_up(self) -> None:
        """Whoever sends it is to stop."""
        self.is_kept = False
        if self._scope is not None:
            self._scope.deadline = event_loop.now()
