"""What a page of a session's messages costs where none of its places parts, and what is kept."""

from __future__ import annotations

from typing import Any

from walld.sessions.state.events import Event
from walld.sessions.views.message_page import _begin
from walld.sessions.views.tail_index import TailIndex


class Copied(list[Any]):
    """A list that counts what is copied of it."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.copied += len(found) if isinstance(at, slice) else 0
        return found


def test_messages_of_one_role_are_walked_once() -> None:
    """They are sent as one: no page may begin among them, and each is looked at."""
    told = Copied({"role": "user", "content": "a line"} for _ in range(2_000))
    named = [(at, (at + 1, 0)) for at in range(2_000)]
    assert _begin(told, named, 2_000, 1, is_all=True) is None
    assert told.copied <= 2_000


def test_an_index_counts_the_turn_ids_that_it_keeps() -> None:
    index = TailIndex()
    seq, held = 0, []
    for _ in range(2):
        for number in range(500):
            seq += 1
            payload = {"stream_id": f"s{number}"}
            turn = f"{number:0>1024}"
            index.take(
                Event(
                    seq=seq, id=f"e{seq}", type="turn_assistant_started", turn=turn, payload=payload
                )
            )
        held.append(index.held_bytes)
    assert held[0] >= 500 * 1024
    assert held[1] < 1.5 * held[0], "the same turns of the same streams"
