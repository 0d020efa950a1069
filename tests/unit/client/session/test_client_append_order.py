"""What waits to be sent: in order within a session, those that fail behind the rest."""

from __future__ import annotations

from walld_client.session.append_order import AppendOrder, PostedEntry
from walld_client.wire.messages import NewEntry


def posted(session_id: str, name: str) -> PostedEntry:
    return PostedEntry(session_id, NewEntry("n", b"{}", name))


def sent(waiting: AppendOrder, now: float) -> list[str]:
    """The names of what is sent then, in order; it waits no more."""
    names = []
    while queue := waiting.queue(now):
        names.append(queue.popleft().entry.id)
    return names


def test_in_the_order_of_posting() -> None:
    waiting = AppendOrder()
    assert (waiting.next_at(), len(waiting)) == (None, 0)
    for session_id, name in (("a", "a1"), ("b", "b1"), ("a", "a2")):
        waiting.add(posted(session_id, name))
    assert (waiting.next_at(), len(waiting)) == (0.0, 3)
    assert sent(waiting, 0.0) == ["a1", "b1", "a2"]


def test_a_session_that_fails_stands_aside_until_it_answers() -> None:
    waiting = AppendOrder()
    first = [posted("a", "a1"), posted("b", "b1"), posted("a", "a2")]
    waiting.put_back(first)
    waiting.set_aside("a", 5.0, 2.0)
    waiting.add(posted("a", "a3"))
    assert sent(waiting, 1.0) == ["b1"]
    assert waiting.next_at() == 5.0
    waiting.hurry()
    assert waiting.next_at() == 2.0
    assert sent(waiting, 2.0) == ["a1", "a2", "a3"]
    waiting.put_back(first[::2])
    waiting.add(posted("a", "a4"))
    waiting.set_aside("a", 9.0, 9.0)
    assert (sent(waiting, 3.0), waiting.next_at()) == ([], 9.0)
    waiting.resume("a")
    assert sent(waiting, 3.0) == ["a1", "a2", "a4"]
    waiting.add(posted("a", "a5"))
    assert waiting.next_at() == 0.0


def test_what_was_on_its_way_stands_there_once_and_first() -> None:
    waiting = AppendOrder()
    one, two, three = (posted("a", name) for name in ("a1", "a2", "a3"))
    waiting.add(two)
    waiting.add(three)
    waiting.put_back([one, two])  # cut short: `two` was not taken off yet
    assert sent(waiting, 0.0) == ["a1", "a2", "a3"]


def test_a_session_that_is_dropped_begins_anew() -> None:
    waiting = AppendOrder()
    waiting.add(posted("a", "a1"))
    waiting.set_aside("a", 5.0, 5.0)
    waiting.set_aside("b", 4.0, 4.0)
    waiting.drop("a")
    assert (len(waiting), waiting.next_at()) == (0, None)
    waiting.add(posted("a", "a2"))
    waiting.add(posted("b", "b1"))
    assert sent(waiting, 0.0) == ["a2"]
    assert waiting.next_at() == 4.0
