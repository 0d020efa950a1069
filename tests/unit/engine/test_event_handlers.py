"""What an event may do: each refusal with what was got and what is taken; the others go on."""

from __future__ import annotations

import msgspec
import pytest
from engine_world import World
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.admission import SEQ_MAX
from walld.engine.event_handlers import KIND
from walld.engine.protocol_errors import REFUSED_CODES
from walld.engine.stream import Connection, Stream
from walld.errors import ProtocolError

LONG = b"x" * (limits.TEXT_BYTES_MAX + 1)
LONG_ID = "é" * (limits.ID_BYTES_MAX // 2 + 1)
MOST = str(limits.TEXT_BYTES_MAX)
IDS = f"1..{limits.ID_BYTES_MAX}"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(world: World) -> Connection:
    """Stream 1 goes on and has a token; stream 2 has ended."""
    connection = world.connect()
    world.begin(connection, 1)
    world.say(connection, wire.Token(1, 1, b"a"))
    world.begin(connection, 2)
    world.say(connection, wire.End(2, 1, clean=True))
    assert world.heard(connection) == []
    return connection


def picture(stream: Stream) -> tuple[object, ...]:
    return stream.next_seq, stream.terminal, stream.waiting_bytes, stream.session_id


REFUSED: list[tuple[msgspec.Struct, str, str, str]] = [
    (wire.Start(9, 0, "", "s"), "id_length", "stream_id of 0 bytes", IDS),
    (wire.Start(9, 0, "n", ""), "id_length", "session_id of 0 bytes", IDS),
    (wire.Start(9, 0, LONG_ID, "s"), "id_length", "stream_id of 1026 bytes", IDS),
    (wire.Start(9, 0, "n", LONG_ID), "id_length", "session_id of 1026 bytes", IDS),
    (wire.Start(9, 0, "n", "s", LONG_ID), "id_length", "turn_id of 1026 bytes", IDS),
    (wire.Start(9, 0, "n", "s", None, LONG_ID), "id_length", "parent of 1026 bytes", IDS),
    *[
        (
            wire.Start(9, 0, "n", "s", at_ms=at_ms),
            "malformed_event",
            f"at_ms {at_ms}",
            "0..9007199254740991",
        )
        for at_ms in (-1, 2**53, 2**63)
    ],
    (wire.Start(9, 3, "n", "s"), "bad_seq", "start with seq 3", "0"),
    (wire.Token(7, 1, b"x"), "unknown_stream", "stream 7", "a stream that began (highest 2)"),
    (wire.Token(0, 1, b"x"), "bad_seq", "stream 0, seq 1", f"1..{SEQ_MAX}, 0..{SEQ_MAX}"),
    (wire.Token(-1, 1, b"x"), "bad_seq", "stream -1, seq 1", f"1..{SEQ_MAX}, 0..{SEQ_MAX}"),
    (wire.Token(1, -1, b"x"), "bad_seq", "stream 1, seq -1", f"1..{SEQ_MAX}, 0..{SEQ_MAX}"),
    (
        wire.Token(1, SEQ_MAX + 1, b"x"),
        "bad_seq",
        f"stream 1, seq {SEQ_MAX + 1}",
        f"1..{SEQ_MAX}, 0..{SEQ_MAX}",
    ),
    (wire.Token(1, 2, LONG), "text_length", str(len(LONG)), MOST),
    (wire.Reasoning(1, 2, LONG), "text_length", str(len(LONG)), MOST),
    (wire.Tool(1, 2, "c", "t", LONG), "text_length", str(len(LONG)), MOST),
    (wire.ToolArguments(1, 2, "c", LONG), "text_length", str(len(LONG)), MOST),
    (wire.ToolResult(1, 2, "c", "t", LONG), "text_length", str(len(LONG)), MOST),
    (wire.Custom(1, 2, "k", LONG), "text_length", str(len(LONG)), MOST),
    (wire.Run(1, 2, 3, b"\x01", LONG), "text_length", str(len(LONG)), MOST),
    (
        wire.Run(1, 2, 9, b"\x01", b"x"),
        "malformed_event",
        "kind 9, 1 lengths over 1 bytes",
        "1 bytes of text",
    ),
    (
        wire.Run(1, 2, 3, b"\x01\x01", b"x"),
        "malformed_event",
        "kind 3, 2 lengths over 2 bytes",
        "1 bytes of text",
    ),
    (
        wire.Run(1, 2, 3, b"", b""),
        "malformed_event",
        "kind 3, 0 lengths over 0 bytes",
        "0 bytes of text",
    ),
    (
        wire.Run(1, 2, 3, b"\x81", b"x"),
        "malformed_event",
        "kind 3, -1 lengths over 0 bytes",
        "1 bytes of text",
    ),
    (wire.Run(1, SEQ_MAX, 3, b"\x01\x01", b"xy"), "bad_seq", str(SEQ_MAX + 1), str(SEQ_MAX)),
    (wire.Move(1, 2, ""), "id_length", "session_id of 0 bytes", IDS),
    (wire.Move(1, 2, LONG_ID), "id_length", "session_id of 1026 bytes", IDS),
    (wire.Token(2, 2, b"x"), "after_terminal", "token", "release"),
    (wire.End(2, 2, clean=False), "after_terminal", "end", "release"),
    (wire.AppError(2, 2, "no"), "after_terminal", "app_error", "release"),
    (wire.Release(1, 2), "not_terminal", "release", "end, cancel or error first"),
]


@pytest.mark.parametrize(("event", "code", "got", "limit"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused_by_stream_and_seq_and_nothing_changes(
    world: World, agent: Connection, event: wire.Event, code: str, got: str, limit: str
) -> None:
    assert agent.producer is not None
    before = {n: picture(s) for n, s in agent.producer.streams.items()}
    queue = world.engine.batches.queue_bytes
    world.engine.handlers.offer(agent, event, 5)
    assert world.heard(agent) == [wire.Refused(event.stream, event.seq, code, got, limit)]
    assert {n: picture(s) for n, s in agent.producer.streams.items()} == before
    assert world.engine.batches.queue_bytes == queue
    assert world.engine.counters.protocol_errors[code] == 1
    world.say(agent, wire.Token(1, 2, b"b"))
    assert world.text(agent.producer.streams[1]) == b"ab"
    assert world.heard(agent) == []


def test_no_code_that_rules_give_is_left_out() -> None:
    given = {code for _, code, _, _ in REFUSED}
    elsewhere = {
        "bad_level",
        "disk_full",
        "stream_exists",
        "stream_owned",
        "too_many_streams",
    }  # below, and in test_engine
    assert given | elsewhere == REFUSED_CODES


def test_one_producer_for_one_stream_id(world: World, agent: Connection) -> None:
    second = world.connect(b"q" * 16)
    world.say(second, wire.Start(1, 0, "r1", "s"), wire.Token(1, 1, b"theirs"))
    assert world.heard(second) == [
        wire.Refused(1, 0, "stream_owned", "a stream_id in use", "one producer")
    ], "said once; what follows under that number is dropped and counted"
    assert world.engine.counters.discarded["refused"] == 2
    assert world.text(world.engine.registry.by_key[1000, "r1"]) == b"a"


def test_an_orphans_id_is_taken_until_it_is_resolved(world: World, agent: Connection) -> None:
    world.engine.lose(agent.process, "agent_lost")
    second = world.connect(b"q" * 16)
    world.say(second, wire.Start(1, 0, "r1", "s"))
    (refused,) = world.heard(second)
    assert isinstance(refused, wire.Refused)
    assert (refused.code, refused.limit) == ("stream_exists", "resolve the earlier one first")


def test_another_user_may_use_the_same_id(world: World, agent: Connection) -> None:
    other = world.connect(b"q" * 16, world.process(uid=1001))
    world.begin(other, 1, "r1")
    assert world.heard(other) == []
    assert world.engine.registry.by_key.keys() == {(1000, "r1"), (1000, "r2"), (1001, "r1")}


def test_live_streams_of_a_user_are_bounded_by_their_memory(
    world: World, agent: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their ids and what the application says of them, over all his connections."""
    live = world.engine.registry.live[1000]
    plain = limits.LIVE_STREAM_BYTES + len("r1") + len("s")
    assert (live.count, live.bytes) == (2, 2 * plain)
    most = 3 * plain + 1000
    monkeypatch.setattr(limits, "LIVE_BYTES_PER_UID_MAX", most)
    second = world.connect(b"q" * 16)
    world.say(second, wire.Start(1, 0, "r3", "s", meta=bytes(1000)))
    world.say(second, wire.Start(2, 0, "r4", "s"), wire.Token(2, 1, b"x"))
    limit = f"{most} bytes of a user: {limits.LIVE_STREAM_BYTES} each, and its ids and meta"
    got = f"3 live streams of {most} bytes"
    assert world.heard(second) == [wire.Refused(2, 0, "too_many_streams", got, limit)]
    other = world.connect(b"o" * 16, world.process(uid=1001))
    world.begin(other, 1)
    assert world.heard(other) == [], "another user has his own"
    world.say(agent, wire.Release(2, 2))
    world.say(second, wire.Start(3, 0, "r5", "s"))
    assert world.heard(second) == [], "one that is released makes room"


def test_refused_starts_are_remembered_up_to_a_bound(
    world: World, agent: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSED_STREAMS_MAX", 5)
    world.say(agent, *(wire.Start(number, 0, "", "s") for number in range(3, 23)))
    assert agent.producer is not None
    assert len(agent.producer.refused) == 5
    assert len(world.heard(agent)) == 20


STARTS = wire.Start(9, 0, "n", "s")


@pytest.mark.parametrize(
    ("start", "numbers", "code"),
    [
        *[(wire.Start(number, 0, "n", "s"), (0, -1, 5), "bad_seq") for number in (-1, 0, 2**32)],
        *[(STARTS, (held, -1, 5), "bad_seq") for held in (-(2**63), -1, 2**32 + 1)],
        *[(STARTS, (0, synced, 5), "bad_seq") for synced in (-(2**63), -2, 2**32, 2**64 - 1)],
        *[(STARTS, (0, -1, following), "bad_seq") for following in (-(2**63), -1, 2**64 - 1)],
        (wire.Start(9, 1, "n", "s"), (0, -1, 5), "bad_seq"),
        (wire.Start(9, 0, LONG_ID, "s"), (0, -1, 5), "id_length"),
        (wire.Start(9, 0, "n", "s", at_ms=-1), (0, -1, 5), "malformed_event"),
    ],
)
@pytest.mark.parametrize("released", [True, False])
def test_a_resume_that_no_client_can_mean_changes_nothing(
    world: World,
    agent: Connection,
    start: wire.Start,
    numbers: tuple[int, int, int],
    code: str,
    released: bool,
) -> None:
    assert agent.producer is not None
    world.flush()
    before = {n: picture(s) for n, s in agent.producer.streams.items()}
    world.say(agent, wire.Resume(start, *numbers, released))
    world.flush()
    world.sync()
    (refused,) = (one for one in world.heard(agent) if isinstance(one, wire.Refused))
    assert (refused.stream, refused.seq, refused.code) == (start.stream, start.seq, code)
    assert world.engine.counters.lost_acked == 0
    assert agent.producer.said_max == 2
    assert {n: picture(s) for n, s in agent.producer.streams.items()} == before


ANOTHER = wire.Start(1, 0, "n", "of another process")


@pytest.mark.parametrize(
    "said",
    [ANOTHER, wire.Start(2, 0, "n", "s"), wire.Resume(ANOTHER, 0, -1, 5, False)],
    ids=["behind a later one", "the last number", "resume"],
)
@pytest.mark.parametrize("done", [True, False])
def test_two_processes_that_speak_as_one_producer_are_parted_before_a_word_is_mixed(
    world: World, agent: Connection, said: wire.Start | wire.Resume, done: bool
) -> None:
    if done and isinstance(said, wire.Start):
        world.say(agent, wire.End(1, 2, clean=True))
        world.say(agent, wire.Release(1, 3))
        world.say(agent, wire.Release(2, 2))
        world.flush()
    assert agent.producer is not None
    before = {n: picture(s) for n, s in agent.producer.streams.items()}
    with pytest.raises(ProtocolError, match="forked") as caught:
        world.say(agent, said, wire.Token(1, 9, b"of another process"))
    assert caught.value.code == "producer_shared"
    assert {n: picture(s) for n, s in agent.producer.streams.items()} == before


def test_nor_do_they_mix_on_two_connections(world: World, agent: Connection) -> None:
    """The first one closed: each has one of its own, and the producer that it inherited."""
    assert agent.producer is not None
    before = {n: picture(s) for n, s in agent.producer.streams.items()}
    for said in (ANOTHER, wire.Resume(ANOTHER, 0, -1, 5, False)):
        other = world.connect(producer=agent.producer.id)
        with pytest.raises(ProtocolError, match="two processes"):
            world.say(other, said, wire.Token(1, 9, b"of another process"))
    assert {n: picture(s) for n, s in agent.producer.streams.items()} == before


def test_a_flood_on_a_stream_that_never_was_is_answered_once(
    world: World, agent: Connection
) -> None:
    world.say(agent, *(wire.Token(7, seq, b"x") for seq in range(1, 100)))
    assert len(world.heard(agent)) == 1
    assert world.engine.counters.discarded["refused"] == 99


def test_what_was_taken_is_taken_once_and_acknowledged_again(
    world: World, agent: Connection
) -> None:
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    agent.dirty.clear()
    world.say(agent, wire.Start(1, 0, "r1", "s"), wire.Token(1, 1, b"other"))
    assert world.text(stream) == b"a"
    assert world.engine.counters.discarded["duplicate"] == 2
    assert agent.dirty == {stream}
    assert world.heard(agent) == []


def test_a_missing_seq_stays_missing(world: World, agent: Connection) -> None:
    """P10: what follows is taken, and the gap is for a reader to see."""
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    world.say(agent, wire.Token(1, 5, b"e"), wire.Token(1, 3, b"late"))
    assert (stream.next_seq, world.text(stream)) == (6, b"ae")


@pytest.mark.parametrize("seq", [1, 2, 4, 5])
def test_a_run_adds_what_is_new_of_it(world: World, agent: Connection, seq: int) -> None:
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    world.say(agent, wire.Token(1, 2, b"bb"), wire.Token(1, 3, b""))
    world.say(agent, wire.Run(1, seq, 3, b"\x01\x02\x00\x81\x00\x03"[seq - 1 :], b"abbcddd"))
    if seq == 1:
        assert world.text(stream) == b"abbcddd"
        assert (stream.next_seq, world.heard(agent)) == (6, [])
        assert world.engine.counters.discarded["duplicate"] == 3
        assert world.engine.counters.received["token"] == 3 + 5


def test_a_run_of_nothing_new_is_a_duplicate(world: World, agent: Connection) -> None:
    assert agent.producer is not None
    world.say(agent, wire.Run(1, 0, 3, b"\x01\x01", b"xa"))
    assert world.engine.counters.discarded["duplicate"] == 2, "each of its tokens"
    assert world.text(agent.producer.streams[1]) == b"a"


def test_a_run_counts_as_so_many_tokens(world: World, agent: Connection) -> None:
    before = world.engine.counters.received["token"]
    world.say(agent, wire.Run(1, 2, 3, b"\x01\x01\x01", b"bcd"))
    assert world.engine.counters.received["token"] == before + 3
    world.say(agent, wire.Run(1, 5, 4, b"\x01\x01", b"ef"))
    assert world.engine.counters.received["reasoning"] == 2


@pytest.mark.parametrize("terminal", [wire.End(1, 2, clean=True), wire.AppError(1, 2, "boom")])
def test_first_terminal_wins_and_release_is_legal_after_any(
    world: World, agent: Connection, terminal: wire.Event
) -> None:
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    world.say(agent, terminal)
    assert stream.terminal
    world.say(agent, wire.Release(1, 3))
    assert stream.gone
    assert world.heard(agent) == []
    assert 1 not in agent.producer.streams


def test_late_events_of_a_stream_that_is_done_are_counted_and_not_answered(
    world: World, agent: Connection
) -> None:
    world.say(agent, wire.Release(2, 2), wire.Token(2, 3, b"x"), wire.Release(2, 4))
    assert world.heard(agent) == []
    assert world.engine.counters.discarded["late"] == 2


def test_a_number_is_never_used_again(world: World, agent: Connection) -> None:
    assert agent.producer is not None
    world.say(agent, wire.Release(2, 2))
    later = world.connect(producer=agent.producer.id)
    world.say(later, wire.Start(2, 0, "another", "s"))
    assert world.engine.registry.by_key.keys() == {(1000, "r1")}
    assert world.engine.counters.discarded["late"] == 1


def test_a_stream_moves_with_its_records(world: World, agent: Connection) -> None:
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    world.say(agent, wire.Move(1, 2, "t"))
    assert (stream.session_id, stream.next_seq) == ("t", 3)
    assert world.engine.registry.of_session(1000, "t") == [stream]


def test_on_a_full_disk_tokens_are_dropped_and_ends_are_taken(
    world: World, agent: Connection
) -> None:
    """P7, P10: the queue is above its mark and the disk takes nothing."""
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    world.engine.disk_full = True
    world.engine.batches.queue_bytes += limits.QUEUE_BYTES_MAX
    assert world.engine.is_dropping
    world.say(agent, wire.Token(1, 2, b"b"), wire.Tool(1, 3, "c", "t"), wire.Token(1, 4, b"c"))
    assert world.engine.counters.discarded["disk_full"] == 3
    assert world.text(stream) == b"a"
    world.say(agent, wire.Move(1, 5, "t"))
    assert stream.session_id == "s", "no number of them fills memory"
    refused = wire.Refused(1, 2, "disk_full", "token", "room on the disk")
    assert world.heard(agent) == [refused], "said once: what is safe ends before it"
    world.say(agent, wire.End(1, 6, clean=True), wire.Release(1, 7))
    assert stream.gone
    assert world.heard(agent) == []


def test_on_a_full_disk_a_move_is_taken_and_each_gap_told(world: World, agent: Connection) -> None:
    """Or all that is said behind it would be told of the session before."""
    assert agent.producer is not None
    stream = agent.producer.streams[1]
    world.engine.disk_full = True
    world.engine.batches.queue_bytes += int(limits.QUEUE_BYTES_MAX * 0.8)
    world.say(agent, wire.Token(1, 2, b"b"), wire.Move(1, 3, "t"), wire.Token(1, 4, b"c"))
    assert (stream.session_id, stream.next_seq) == ("t", 4)
    told = [one.seq for one in world.heard(agent) if isinstance(one, wire.Refused)]
    assert told == [2, 4]


def test_on_a_full_disk_each_of_many_streams_is_told_before_it_is_called_safe(
    world: World, agent: Connection
) -> None:
    """One read may hold a word of each: their answers are more than a peer may leave unread."""
    numbers = range(3, 3003)
    for number in numbers:
        world.begin(agent, number)
    world.heard(agent)
    world.engine.disk_full = True
    world.engine.batches.queue_bytes += limits.QUEUE_BYTES_MAX
    world.say(agent, *[wire.Token(number, 1, b"x") for number in numbers])
    told = [one.stream for one in world.heard(agent) if isinstance(one, wire.Refused)]
    assert len(told) < len(numbers)
    world.say(agent, *[wire.End(number, 2, clean=True) for number in numbers])
    world.engine.acknowledge(agent)
    heard = world.heard(agent)
    told += [one.stream for one in heard if isinstance(one, wire.Refused)]
    assert sorted(told) == list(numbers)
    assert isinstance(heard[-1], wire.Ack)


def test_what_a_full_disk_dropped_of_replies_that_are_gone_is_forgotten(
    world: World, agent: Connection
) -> None:
    """A process may begin and end replies for as long as the disk is full."""
    world.engine.disk_full = True
    world.engine.batches.queue_bytes += limits.QUEUE_BYTES_MAX
    for number in range(3, 3003):
        world.begin(agent, number)
        world.say(agent, wire.Token(number, 1, b"x"), wire.End(number, 2, clean=True))
        world.say(agent, wire.Release(number, 3))
        world.engine.acknowledge(agent)
        world.heard(agent)
    held = [getattr(agent, name) for name in ("outbox", "dirty", "untold")]
    assert [len(one) for one in held] == [0, 0, 0]


def test_below_the_mark_a_full_disk_drops_nothing(world: World, agent: Connection) -> None:
    world.engine.disk_full = True
    world.say(agent, wire.Token(1, 2, b"b"))
    assert world.text(world.engine.registry.by_no[1]) == b"ab"


def test_every_event_has_a_kind_that_is_counted(world: World) -> None:
    assert set(KIND) == set(wire.Event.__args__)
    assert set(KIND.values()) <= set(world.engine.counters.received)
