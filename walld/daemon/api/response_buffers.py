"""Bounds what a user has in flight: requests not answered yet, and answers not read yet.

Owns: their bytes by uid, who waits for room, and whose answers are given up. Refuses: sockets
(`server.py`).

An answer is as long as what was asked for, and its bytes are the daemon's until its reader takes
them. One reader that does not is nothing; many would fill the memory. So beyond a bound a user's
next long question waits until one of his answers is read, and meanwhile those that nobody reads are
given up, as one is that nobody reads for long. Other users wait for nothing.

A request is the daemon's from its first byte until it is answered or refused. So the rest of a long
one is read once there is room for all of it: a crowd of them waits in the kernel. Requests have a
share of their own, which answers do not take: a reader that is slow keeps no entry from its file.

Invariant: what waits for room holds none but its own request, and requests alone never fill what
answers wait for. So nobody waits for one that waits for him.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from walld import limits
from walld.daemon import event_loop

if TYPE_CHECKING:
    import socket
    from types import TracebackType

__all__ = ["RequestBuffer", "ResponseBuffer", "ResponseBuffers"]

_LOOK_SECONDS = 0.05
"""Between two looks of one that waits for room."""
_BESIDE_BYTES = 32 * limits.KIB
"""What a connection that waits for its reader holds beside its answer: the requests behind it."""


class ResponseBuffers:
    """What the users of one daemon have in flight."""

    def __init__(self) -> None:
        self._users: dict[int, _UserBuffers] = {}

    def requests_of(self, uid: int) -> RequestBuffer:
        """For the requests of one connection, which holds nothing yet."""
        return RequestBuffer(self._of(uid))

    def _of(self, uid: int) -> _UserBuffers:
        held = self._users.get(uid)
        if held is None:
            held = self._users[uid] = _UserBuffers()
        return held

    def hold(self, uid: int, count: int) -> ResponseBuffer:
        """Count `count` bytes of an answer until the context is left: they wait for their reader.

        It waits for no room. Where there is none an answer that nobody reads is given up for it.
        """
        held = self._of(uid)
        if held.bytes > limits.IN_FLIGHT_BYTES_MAX:
            held.give_up_one()
        return ResponseBuffer(held, count + _BESIDE_BYTES)

    async def wait_for_room(self, uid: int) -> None:
        """Wait until what the user has in flight leaves room for one more long answer."""
        while (held := self._users.get(uid)) and held.bytes > limits.IN_FLIGHT_BYTES_MAX:
            held.give_up_one()
            await anyio.sleep(_LOOK_SECONDS)


class _UserBuffers:
    """What one user has in flight. answers: in the order in which they were made."""

    __slots__ = ("answers", "bytes", "freed", "request_bytes", "turn")

    def __init__(self) -> None:
        self.answers: dict[ResponseBuffer, None] = {}
        self.bytes = 0
        """Of answers and requests."""
        self.request_bytes = 0
        self.turn = anyio.Lock(fast_acquire=True)
        """Requests that wait for room: the first alone looks for it."""
        self.freed = event_loop.Bell()
        """Rung for that one where there may be room."""

    def give_up_one(self) -> None:
        """Give up the oldest answer that nobody reads, or that is read too slowly."""
        now = event_loop.now()
        for one in self.answers:
            is_unread = now > one.moved_at + limits.UNREAD_SECONDS_MAX
            if one.is_kept and (is_unread or now > one.begun_at + limits.READ_SECONDS_MAX):
                one.give_up()
                return


class ResponseBuffer:
    """The room of one answer on its way. is_kept: it was not given up."""

    __slots__ = ("_count", "_held", "_scope", "begun_at", "is_kept", "moved_at")

    def __init__(self, held: _UserBuffers, count: int) -> None:
        self._held, self._count = held, count
        self._scope: anyio.CancelScope | None = None
        self.begun_at = self.moved_at = event_loop.now()
        self.is_kept = True

    def __enter__(self) -> ResponseBuffer:
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
        """Whoever sends it stops: `moves` raises TimeoutError."""
        self.is_kept = False
        if self._scope is not None:
            self._scope.deadline = event_loop.now()


class RequestBuffer:
    """What one connection holds of long requests: those that are read, and the one it reads."""

    __slots__ = ("_count", "_held")

    def __init__(self, held: _UserBuffers) -> None:
        self._held, self._count = held, 0

    async def reserve(self, count: int) -> bool:
        """Hold `count` bytes in all, once the user's other requests leave room. True: it waited."""
        more, held = count - self._count, self._held
        if more <= 0:
            return False
        waits = held.turn.locked() or not self._is_room(more)
        if waits:
            async with held.turn:
                while not self._is_room(more):
                    await held.freed.wait()
        self._change(more)
        return waits

    def _is_room(self, more: int) -> bool:
        return self._held.request_bytes + more <= limits.REQUESTS_BYTES_MAX

    def free(self) -> None:
        """All requests it holds are answered, or the connection ends."""
        if self._count:
            self._change(-self._count)
            self._held.freed.ring()

    def _change(self, count: int) -> None:
        self._count += count
        self._held.request_bytes += count
        self._held.bytes += count
