"""What a page of a session's messages costs where none of its places parts."""

from __future__ import annotations

from typing import Any

from walld.sessions.views.message_page import _begin


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
