"""The ring: what of it a request waits for, and how far a reply is safe."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.client.link.test_client_backlog import Kernel, Ring
from walld_client.encoding import event_frames
from walld_client.link.stream import Stream
from walld_client.wire import messages as wire

# --- what a request waits for ---------------------------------------------------------------------

troubles = st.lists(
    st.tuples(
        st.sampled_from(["token", "move", "room", "sync", "lost", "full"]), st.integers(1, 3)
    ),
    max_size=60,
)


@given(troubles)
@settings(max_examples=300)
def test_what_is_due_comes_and_nothing_else_is_waited_for(todo: list[tuple[str, int]]) -> None:
    """Each daemon is given what is due, and nothing behind it, whatever a full ring has dropped.

    The daemon of the model forgets what it did not sync when the connection ends.
    """
    ring, kernel = Ring(3, bytes_max=1500), Kernel(0)
    for verb, number in todo:
        stream = ring.streams[number]
        if verb == "token":
            ring.wait(number, b"x" * 100)
        elif verb == "move":
            ring.say(number, wire.Move(event_frames.ID, event_frames.ID, "T"))
        elif verb == "room":
            kernel.room = 200 * number
            ring.pump(kernel)
        elif verb == "sync":
            taken = [seq for s, seq in kernel.events() if s == number]
            stream.synced = max([stream.synced, *taken])
        elif verb == "lost":
            ring.backlog.rewind()
            kernel = Kernel(0)
        ring.backlog.make_room()
    due = {number: stream.due for number, stream in ring.streams.items() if not stream.gone}
    kernel.room = 1 << 40
    ring.pump(kernel)
    for number, seq in due.items():
        stream = ring.streams[number]
        begun = 0 if stream.introduced else -1  # by its Resume
        has = max([seq for s, seq in kernel.events() if s == number] + [stream.synced, begun])
        assert seq <= has, "who asks waits for what never comes"
        assert seq == has or stream.held_from > has, "who asks is answered too early"


def test_an_end_of_dropped_tokens_is_not_due() -> None:
    ring, kernel = Ring(2, bytes_max=4096), Kernel(0)
    for _ in range(20):
        ring.wait(1, b"x" * 100)
    for _ in range(60):
        ring.wait(2, b"y" * 100)
    ring.backlog.make_room()
    one, two = ring.streams.values()
    assert (one.due, two.due) == (0, 60)
    kernel.room = 1 << 40
    ring.pump(kernel)
    assert max(kernel.events()) == (2, 60)
    assert (one.due, two.due) == (0, 60)
    ring.sent(1)
    two.refused |= {59, 60}
    assert (one.due, two.due) == (21, 58)


# --- how far a reply is safe ----------------------------------------------------------------------


def acked(stream: Stream, synced: int) -> int:
    """What an Ack does to a stream; the seq up to which all of it is durable then."""
    stream.synced = synced
    return stream.durable


def test_durable_stops_below_what_was_dropped() -> None:
    ring = Ring(bytes_max=4096)
    stream = ring.streams[1]
    for _ in range(400):
        ring.say(1, wire.Token(event_frames.ID, event_frames.ID, b"x" * 100))
    assert acked(stream, 0) == 0
    ring.backlog.make_room()
    assert ring.backlog.dropped_events
    assert acked(stream, 400) == 0, "an Ack covers gaps"


def test_what_was_let_go_of_is_durable_where_the_same_daemon_says_so() -> None:
    """Taken and given up: safe once it is acked, but not across the end of a connection."""
    for reconnects, durable in ((False, 40), (True, 0)):
        ring = Ring(bytes_max=4096)
        stream = ring.streams[1]
        for _ in range(40):
            ring.say(1, wire.Token(event_frames.ID, event_frames.ID, b"x" * 100))
            ring.backlog.pump(Kernel().send, 1 << 20)
        assert acked(stream, 0) == 0
        ring.backlog.make_room()
        assert ring.backlog.unheld_events
        assert not ring.backlog.dropped_events
        if reconnects:
            ring.backlog.rewind()
        assert acked(stream, 40) == durable


def test_a_refused_event_is_not_durable_and_what_was_synced_before_a_drop_is() -> None:
    stream = Ring().streams[1]
    assert acked(stream, 4) == 4
    stream.lose(2, 3)
    assert acked(stream, 7) == 7, "it had been synced"
    stream.lose(6, 9)
    assert acked(stream, 12) == 7
    stream.lose(30, 31)
    assert acked(stream, 40) == 7
