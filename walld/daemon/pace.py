"""How long the requests of one user go on before the event loop has its turn.

Owns: a slice of time by uid, for all its connections together. Refuses: what a request does
(`requests.py`), agents' events, which have shares of their own (`shares.py`).

A short question is answered without a wait, and the next one may be there already: who asks without
a pause, and reads, would have the loop to himself, and nobody else an ack. Only connections of one
user wait for one another: each user has a slice, and they take turns as the loop's tasks do.
"""

from __future__ import annotations

import time

import anyio
from anyio.lowlevel import checkpoint

from walld import limits

__all__ = ["Pace"]


class Pace:
    """The slices of all users."""

    def __init__(self) -> None:
        self._users: dict[int, _Slice] = {}

    async def step(self, uid: int) -> None:
        """Before a request that was not waited for: at once while the slice lasts, else behind a
        turn of the loop.
        """
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = _Slice()
        if time.perf_counter() < user.until:
            return
        async with user.turn:
            # Who waited here finds a slice that another began, and takes what is left of it.
            if time.perf_counter() >= user.until:
                await checkpoint()
                user.until = time.perf_counter() + limits.ASKING_SLICE_SECONDS


class _Slice:
    __slots__ = ("turn", "until")

    def __init__(self) -> None:
        self.turn = anyio.Lock(fast_acquire=True)
        self.until = 0.0
