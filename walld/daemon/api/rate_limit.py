"""Limits how long one user's requests run before the event loop has a turn.

Owns: a slice of time by uid, for all its connections together, and who is held to it. Refuses: what
a request does (`server.py`), agents' events, which have shares of their own (`fair_queue.py`).

A short question is answered without a wait, and the next one may be there already: who asks without
a pause, and reads, would have the loop to himself, and nobody else an ack. So would two hundred
connections that ask one by one: the loop does all that is there in one turn. Only connections of
one user wait for one another: each user has a slice, and they take turns as the loop's tasks do.

A user who is alone, and waits for each answer, is held to nothing: 64 connections that submit share
their flushes, and in slices they did a third less. While an agent waits for its ack there is a rest
behind each slice, not one turn: an ack takes a dozen turns, each as long as what is done between
two of them. Who asks one thing behind a pause has rested: an append of a program whose agent waits
took 1.9 ms for 0.7.

A slice bounds how many short requests there are in a turn. The work of a long request goes by its
bytes, on the loop and in the flush that it is in: while another user waits it rests first, by its
length. The work of a long answer does, too, and how long it is nobody knows before: it is taken to
be as long as the last one. Nothing is held while it is made: a disk may hang for one answer, and
the user's others go on.

Invariant I6: while another user waits for a flush, long requests of a user are begun no faster than
ASKING_BYTES_PER_SECOND, but for one behind a pause; and answers that are as long as the one before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from walld import limits
from walld.daemon.transport.recent_askers import RecentAskers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RateLimit"]


class RateLimit:
    """The slices of all users of one daemon."""

    def __init__(
        self, agents_wait: Callable[[], bool], other_users_wait: Callable[[int], bool]
    ) -> None:
        """agents_wait: some agent waits to be told that what it said is written, or just did.

        other_users_wait: somebody of another user than this one does.
        """
        self._agents_wait = agents_wait
        self._other_users_wait = other_users_wait
        self._users: dict[int, _Slice] = {}
        self._asking = RecentAskers[int]()

    async def wait(self, uid: int, count: int = 0, *, is_waited_for: bool = False) -> None:
        """Called before a request: returns at once while the user's slice lasts, else behind a turn
        of the loop or a rest.

        count: its bytes. is_waited_for: the connection was empty, and waited for this request.
        """
        user = self._of(uid)
        now = time.perf_counter()
        self._asking.asked(uid, now)
        owed = count / limits.ASKING_BYTES_PER_SECOND
        is_long = owed > limits.ASKING_SLICE_SECONDS and self._other_users_wait(uid)
        is_alone = not (self._asking.others(uid, now) or self._agents_wait())
        if not is_long and (now < user.until or (is_waited_for and is_alone)):
            return
        rest = limits.ASKING_REST_SECONDS + owed if is_long else limits.ASKING_REST_SECONDS
        has_rested = now >= user.until + rest and not user.turn.locked()
        async with user.turn:
            # Who waited here finds a slice that another began, and takes what is left of it.
            if is_long or time.perf_counter() >= user.until:
                if (is_long or self._agents_wait()) and not (is_waited_for and has_rested):
                    await anyio.sleep(rest)
                else:
                    await checkpoint()
                user.until = time.perf_counter() + limits.ASKING_SLICE_SECONDS

    async def wait_to_answer(self, uid: int) -> None:
        """Called before what may have a long answer: returns at once where no other user waits,
        else behind a rest for those before it.
        """
        if not self._other_users_wait(uid):
            return
        user = self._of(uid)
        async with user.answer_turn:
            rest = user.answers_rest_until - time.perf_counter()
            if rest > 0:
                await anyio.sleep(rest)
            user.answers_rest_until = time.perf_counter() + user.answer_seconds

    def answered(self, uid: int, count: int) -> None:
        """A question of that user has an answer of so many bytes."""
        seconds = min(count / limits.ASKING_BYTES_PER_SECOND, limits.ANSWER_REST_SECONDS_MAX)
        is_long = seconds > limits.ASKING_SLICE_SECONDS
        self._of(uid).answer_seconds = seconds if is_long else 0.0

    def _of(self, uid: int) -> _Slice:
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = _Slice()
        return user


class _Slice:
    """One user's: it lasts until `until`; `turn` is for who waits for the next one.

    answer_seconds: what the last answer is worth at their pace; 0 for a short one. answer_turn: for
    who waits until they have rested, `answers_rest_until`.
    """

    __slots__ = ("answer_seconds", "answer_turn", "answers_rest_until", "turn", "until")

    def __init__(self) -> None:
        self.answer_seconds = 0.0
        self.answer_turn = anyio.Lock(fast_acquire=True)
        self.answers_rest_until = 0.0
        self.turn = anyio.Lock(fast_acquire=True)
        self.until = 0.0
