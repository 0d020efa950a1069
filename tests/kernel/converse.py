"""An application with sessions under a soak: turns with tools and replies, read back, then deleted.

Owns: what it says, drawn from a seed, and that its session tells exactly that. Refuses: being
killed (`processes.py`), faults (`soak.py`).

A call that is refused for want of room has changed nothing (P7), so it is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import monotonic, sleep
from typing import Final, TypeVar

import walld_client
from walld_client.session.session import Session
from walld_client.session.turn import Turn
from walld_client.wire import messages as wire

from .board import Board

__all__ = ["converse", "session_name"]

T = TypeVar("T")
_PATIENCE_SECONDS: Final = 60.0
"""Longer than any disk here hangs: a call that is given up may have been done all the same."""
_FOR_NOW: Final = (*wire.OF_THIS_MOMENT, "unreadable", "unwritable")
_AGAIN_SECONDS: Final = 0.05
_TURNS: Final = 12
_TIMES: Final = (1, 40, 300, 5_000)
"""How often a word is said in a message or a result: the longest is beside the session."""


def session_name(name: str, number: int) -> str:
    """That session of the application `name`."""
    return f"{name}.{number}"


def converse(socket_path: str, name: str, seed: int, board: Board) -> None:
    """Session after session, until it is killed.

    board: one row, whose `tried` is the number of its session, `tokens` how many turns of that were
    taken, and `ended` says that it is being deleted.
    """
    random = Random(f"converse {seed} {name}")
    client = walld_client.connect(socket_path, timeout=_PATIENCE_SECONDS)
    board.begin()
    number = 0
    while True:
        board.put(0, "tokens", 0)
        board.put(0, "tried", number)
        board.put(0, "ended", 0)
        session = client.session(session_name(name, number))
        _converse(session, random, board)
        board.put(0, "ended", 1)
        assert _room_for(client.delete, session.session_id), "it was there"
        assert session.messages() is None, "nothing of it is left"
        number += 1


def _converse(session: Session, random: Random, board: Board) -> None:
    said: list[tuple[str, str]] = []
    for at in range(random.randrange(1, _TURNS)):
        content = f"turn {at} " * random.choice(_TIMES)
        turn = _room_for(session.submit, content, message_id=f"m{at}", timeout=_PATIENCE_SECONDS)
        board.put(0, "tokens", at + 1)
        turn.worker_started()
        if random.random() < 0.5:
            _tool(session, turn, random)
        said += ("user", content), ("assistant", _reply(turn, random))
        turn.completed()
        if random.random() < 0.2:
            _room_for(session.compact, "so far", turn.turn_id)
            said = said[-2:]
        listed = (one for one in session.messages() or [] if "_wal_journal" not in one)
        told = [(one["role"], one["content"]) for one in listed]
        assert told[len(told) - len(said) :] == said, f"{session}: {told}, and {said} was said"


def _tool(session: Session, turn: Turn, random: Random) -> None:
    name = f"call {turn.turn_id}"
    turn.intent(
        "look", {"at": "."}, side_effect="read", resume_policy="rerun-after-check", call_id=name
    )
    turn.tool_started(name)
    turn.tool_finished(name, "seen " * random.choice(_TIMES))
    if random.random() < 0.3:
        data = random.randbytes(random.choice((10, 100_000)))
        kept = _room_for(session.artifact, data)
        assert session.read_artifact(kept.sha256) == data, "the bytes of that hash"


def _reply(turn: Turn, random: Random) -> str:
    reply = _room_for(turn.reply)
    words = [f"word {at} " for at in range(random.choice((1, 20, 400)))]
    for word in words:
        reply.token(word)
    sleep(random.choice((0.0, 0.003, 0.3)))
    reply.end("stop")
    return "".join(words)


def _room_for(call: Callable[..., T], *arguments: object, **named: object) -> T:
    """What the call gives, once there is room for it."""
    deadline = monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return call(*arguments, **named)
        except walld_client.Refused as refused:
            if refused.code not in _FOR_NOW or monotonic() > deadline:
                raise
        sleep(_AGAIN_SECONDS)
