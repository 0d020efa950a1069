"""What is asked of the sessions of a world, and whether the answers hold.

Owns: the questions: in the middle of trouble, at rest, after another start, after rot, of the disk.
Refuses: what is right (`books.py`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from walld_client.wire import messages as wire

from walld.ledger.line import read_line

from .oracle import Wrong
from .questions import asked

if TYPE_CHECKING:
    from .books import Session
    from .oracle import Promise
    from .world import World

__all__ = ["LedgerQuestions"]


class LedgerQuestions:
    """All that is asked about sessions in one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._books = world.books
        self._random = world.ledger_random

    async def read(self, *, rotten: bool = False) -> dict[Session, list[bytes]]:
        """The lines of every session, as root."""
        found = {}
        for uid, session_id in self._books.sessions():
            await self._world.lives.up()
            request = wire.Events(1, session_id, uid=uid)
            answer = await asked(self._world.socket_path, request, cannot=self._cannot(rotten))
            found[uid, session_id] = [] if answer is None else answer
        return found

    def _cannot(self, rotten: bool) -> tuple[str, ...]:
        return ("unreadable",) if rotten else ()

    async def judge(
        self,
        where: str,
        replies: list[wire.Recovered],
        promises: dict[tuple[int, str], Promise],
        *,
        calm: bool,
    ) -> dict[Session, list[bytes]]:
        """Are these the lines that must be there? replies: asked for before."""
        if self._world.questions.is_spoiled():
            await self.after_rot()
            return {}
        must, life = self._books.must(), self._world.lives.starts
        lines = await self.read()
        if self._world.lives.starts != life or not lines:
            return lines
        must = must.still(self._books.must())
        for session, one in lines.items():
            self._books.judge(session, one, where, must, calm=calm)
        self._books.check_replies(replies, lines, promises, where, calm=calm)
        self._world.questions.digest.update(msgspec.msgpack.encode(sorted(lines.items())))
        return lines

    async def look_in(self) -> None:
        """Somebody reads in the middle of trouble. A daemon that dies meanwhile answers nothing."""
        world = self._world
        daemon, life = world.lives.daemon, world.lives.starts
        if daemon is None or not daemon._ready.is_set():
            return
        world.questions.look()
        promises = world.oracle.promises()
        try:
            replies = await world.questions.ask_all()
            if world.lives.starts == life:
                await self.judge("in the middle", replies, promises, calm=False)
        except OSError:
            return

    async def at_rest(self, replies: list[wire.Recovered]) -> dict[Session, list[bytes]]:
        """Trouble is over: all that is promised of turns, too; no damage; no deleted bytes."""
        promises = self._world.oracle.promises(settled=True)
        lines = await self.judge("at rest", replies, promises, calm=True)
        for session in lines:
            await self._check_peace(session)
        # A damaged segment that was copied aside is whoever's runs this to look at, and to remove.
        aside = () if self._world.questions.is_spoiled() else ("quarantine/",)
        self._check_erased(("sessions/", *aside))
        return lines

    async def again(self, lines: dict[Session, list[bytes]]) -> None:
        """Another crash and start, and the lines are the same."""
        if not lines:
            return
        promises = self._world.oracle.promises(settled=True)
        replies = await self._world.questions.ask_all()
        after = await self.judge("after another start", replies, promises, calm=True)
        if not after:
            return
        for session, was in lines.items():
            if after[session] != was:
                raise Wrong(f"a start changed {session}\n{was}\n{after[session]}")
            await self._check_peace(session)

    async def after_rot(self) -> None:
        """Damage in the log may cost lines; none is altered or invented."""
        for session, lines in (await self.read(rotten=True)).items():
            for text in lines:
                line = read_line(text)
                self._books.check_origin(session, line, "after rot")

    async def _check_peace(self, session: Session) -> None:
        """Nothing rotted: nothing is called damaged."""
        for name in ("audit", "state"):
            request = wire.Project(1, session[1], name, uid=session[0])
            answer = await asked(self._world.socket_path, request)
            found: Any = None if answer is None else json.loads(answer)
            if found is not None and found["chain_breaks"]:
                raise Wrong(f"session {session}: {found['chain_breaks']}, and nothing rotted")

    def _check_erased(self, prefixes: tuple[str, ...]) -> None:
        left = self.not_erased(prefixes)
        if left:
            raise Wrong(f"was deleted and is still there (P5): {left}")

    def not_erased(self, prefixes: tuple[str, ...]) -> str:
        """Now, or if power were cut now."""
        storage, books = self._world.storage, self._books
        files = storage.files(), storage.files(durable=True)
        return books.not_erased(files[0], prefixes) or books.not_erased(files[1], prefixes)
