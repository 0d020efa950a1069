"""Entries in the engine: accepted, made lines (N1, N2), pending until checkpointed (N3)."""

from __future__ import annotations

import json

import msgspec
import pytest
from engine_world import UID, World
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.session_log import LINE_KIND, SessionLog
from walld.engine.stream import Stream
from walld.errors import Refusal
from walld.ledger.line import chain_of, read_line
from walld.ledger.pending import LEAPT, Pending
from walld.ledger.repair_notes import Leap
from walld.sessions.state.journal import Journal
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.turns import TurnState
from walld.wal import records


@pytest.fixture
def world() -> World:
    return World()


def opened(world: World, session_id: str = "s") -> SessionLog:
    """A session that was never written."""
    ledger = SessionLog(UID, session_id, SessionState(), SessionLog.first_chain(UID, session_id))
    world.engine.session_logs.open[UID, session_id] = ledger
    return ledger


def entry(ident: str, text: str = "hello", **fields: object) -> wire.NewEntry:
    payload = json.dumps({"role": "user", "content": text}).encode()
    return wire.NewEntry(fields.pop("type", "message"), payload, ident, **fields)  # type: ignore[arg-type]


def append(
    world: World, ledger: SessionLog, *given: wire.NewEntry, **fields: object
) -> list[wire.Placed]:
    expected = fields.pop("expected_seq", None)
    process = fields.pop("process", None)
    return world.engine.session_logs.append(
        ledger, list(given), expected, process, 5, 0.0, **fields
    )  # type: ignore[arg-type]


def stored(world: World, stream: Stream) -> list[bytes]:
    """The lines of an internal stream as a reader gets them."""
    return [
        item.event.payload
        for item in world.items(stream)
        if isinstance(item, records.Happened) and isinstance(item.event, wire.Custom)
    ]


def test_lines_are_chained_and_the_log_holds_the_same_bytes(world: World) -> None:
    ledger = opened(world)
    placed = append(world, ledger, entry("a"), entry("b"))
    assert placed == [wire.Placed(1, "a"), wire.Placed(2, "b")]
    first, second = [one.line for one in ledger.pending]
    assert read_line(first).chain == SessionLog.first_chain(UID, "s")
    assert read_line(second).chain == chain_of(first)
    assert read_line(second).parent == "a", "an entry hangs on the leaf"
    assert ledger.stream is not None
    assert stored(world, ledger.stream) == [first, second]
    world.flush()
    assert stored(world, ledger.stream) == [first, second]


def test_all_entries_or_none(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"))
    before = (ledger.chain, list(ledger.pending), world.engine.batches.queue_bytes)
    with pytest.raises(Refusal) as refused:
        append(world, ledger, entry("b"), entry("c"), entry("a"))
    assert refused.value.code == "duplicate_id"
    assert (ledger.chain, ledger.pending, world.engine.batches.queue_bytes) == before
    assert append(world, ledger, entry("b")) == [wire.Placed(2, "b")]
    assert [read_line(one.line).parent for one in ledger.pending] == [None, "a"]


def test_a_fact_that_cannot_be_used_is_refused_and_no_seq_is_lost(world: World) -> None:
    ledger = opened(world)
    submit = wire.NewEntry("turn_submitted", b'{"message_id":"m","content":"x"}', "t", turn="t")
    append(world, ledger, submit)
    for odd in (b'["x"]', b"5"):
        started = wire.NewEntry("turn_worker_started", b'{"stream_id":%b}' % odd, "w", turn="t")
        with pytest.raises(Refusal, match="stream_id of turn_worker_started") as refused:
            append(world, ledger, started)
        assert (refused.value.code, refused.value.limit[:6]) == ("bad_payload", "a text")
    assert append(world, ledger, entry("next")) == [wire.Placed(2, "next")]


def test_a_stale_writer_is_told_the_present_seq(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"), entry("b"), expected_seq=0)
    with pytest.raises(Refusal) as refused:
        append(world, ledger, entry("c"), expected_seq=1)
    assert (refused.value.code, refused.value.got, refused.value.limit) == ("stale", "1", "2")


def test_once_gives_the_first_entry_back(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a", once=True), entry("k1", key="k", once=True))
    again = append(world, ledger, entry("a", once=True), entry("k2", key="k", once=True))
    assert again == [wire.Placed(1, "a", is_new=False), wire.Placed(2, "", is_new=False)]
    assert len(ledger.pending) == 2


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"[]", "bad_payload"),
        (b"{", "bad_payload"),
        (b'{"role":\n"user"}', "bad_payload"),
        (b'{"role":"user"}' + b" " * limits.LEDGER_PAYLOAD_BYTES_MAX, "payload_length"),
        (b"[" * 100_000, "bad_payload"),
    ],
)
def test_a_payload_is_one_json_object_on_one_line(world: World, payload: bytes, code: str) -> None:
    ledger = opened(world)
    with pytest.raises(Refusal) as refused:
        append(world, ledger, wire.NewEntry("message", payload, "a"))
    assert refused.value.code == code
    assert not ledger.pending


def test_half_an_emoji_passes(world: World) -> None:
    ledger = opened(world)
    text = rb'{"role":"user","content":"\ud83d"}'
    append(world, ledger, wire.NewEntry("message", text, "a"))
    assert text in ledger.pending[0].line


def test_a_line_is_pending_until_its_checkpoint(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"), entry("b"))
    world.flush()
    lines = world.engine.session_logs.begin_checkpoint(ledger)
    append(world, ledger, entry("c"))
    assert [one.seq for one in ledger.pending] == [1, 2, 3]
    first = ledger.closing[0]
    world.engine.session_logs.checkpointed(ledger, lines[-1].seq, list(ledger.closing), 0.0)
    assert [one.seq for one in ledger.pending] == [3]
    assert first.gone
    assert ledger.stream is not None
    assert ledger.stream.begin.number == 2
    assert world.engine.session_logs.pending_bytes == len(ledger.pending[0].line)


def test_a_checkpoint_that_is_told_twice_takes_nothing_that_came_since(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"))
    lines = world.engine.session_logs.begin_checkpoint(ledger)
    streams = list(ledger.closing)
    world.engine.session_logs.checkpointed(ledger, lines[-1].seq, streams, 0.0)
    append(world, ledger, entry("b"))
    world.engine.session_logs.checkpointed(ledger, lines[-1].seq, streams, 0.0)
    assert [one.seq for one in ledger.pending] == [2]
    assert ledger.pending_bytes == world.engine.session_logs.pending_bytes > 0


def test_the_log_lets_go_of_what_is_checkpointed(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"))
    world.flush()
    lines = world.engine.session_logs.begin_checkpoint(ledger)
    world.engine.session_logs.checkpointed(ledger, lines[-1].seq, list(ledger.closing), 0.0)
    world.flush()
    assert world.engine.segments.live_bytes == 0
    assert not world.engine.registry.by_no


@pytest.mark.parametrize("power", [False, True])
def test_after_a_crash_the_lines_are_there_again(world: World, power: bool) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"), entry("b"))
    world.flush()
    world.sync()
    append(world, ledger, entry("c"))
    world.flush()
    again = world.restarted(power=power)
    (stream,) = again.engine.registry.by_no.values()
    assert stream.is_ledger
    assert (stream.begin.session_id, stream.begin.number) == ("s", 0)
    assert stored(again, stream) == [one.line for one in ledger.pending][: 2 if power else 3]
    assert not again.engine.orphans
    assert not again.engine.registry.by_key


def test_lines_that_a_start_found_are_pending_and_their_streams_close(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"), entry("b"))
    lines, ledgers = list(ledger.pending), world.engine.session_logs
    assert ledger.stream is not None
    found = ledgers.restored((UID, "other"), [ledger.stream], lines, 3.0)
    assert (found.state, found.pending, found.since) == (None, lines, 3.0)
    assert found.pending_bytes == sum(len(one.line) for one in lines)
    assert ledgers.pending_bytes == 2 * found.pending_bytes
    assert found.closing == [ledger.stream]


def test_memory_for_lines_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_BYTES_MAX", 300)
    ledger = opened(world)
    append(world, ledger, entry("a", "x" * 100))
    with pytest.raises(Refusal) as refused:
        append(world, ledger, entry("b", "x" * 200), process=world.process())
    assert refused.value.code == "ledger_full"
    assert refused.value.limit == "300"


def test_on_a_full_disk_turns_are_taken_and_other_entries_are_not(world: World) -> None:
    ledger = opened(world)
    world.engine.disk_full = True
    with pytest.raises(Refusal) as refused:
        append(world, ledger, entry("a"), process=world.process())
    assert refused.value.code == "disk_full"
    submit = wire.NewEntry("turn_submitted", b'{"message_id":"m","content":"x"}', "t", turn="t")
    append(world, ledger, submit)
    assert ledger.stream is not None
    world.engine.batches.ends_only = True
    assert world.flush()
    assert not ledger.stream.has_waiting


def test_a_submission_that_comes_again_is_the_first_one(world: World) -> None:
    ledger = opened(world)
    payload = b'{"message_id":"m","content":"x"}'
    append(world, ledger, wire.NewEntry("turn_submitted", payload, "t1", turn="t1"))
    again = append(world, ledger, wire.NewEntry("turn_submitted", payload, "t2", turn="t2"))
    assert again == [wire.Placed(1, "t1", is_new=False)]
    other = b'{"message_id":"m","content":"y"}'
    with pytest.raises(Refusal) as refused:
        append(world, ledger, wire.NewEntry("turn_submitted", other, "t3", turn="t3"))
    assert refused.value.code == "message_id_taken"


def test_a_turn_is_its_last_process_and_lost_with_it(world: World) -> None:
    ledger, first, second = opened(world), world.process(pid=7), world.process(pid=8)
    payload = b'{"message_id":"m","content":"x"}'
    submit = wire.NewEntry("turn_submitted", payload, "t", turn="t")
    append(world, ledger, submit, process=first)
    assert read_line(ledger.pending[0].line).owner == {
        "boot": "boot", "pid": 7, "inode": 0, "start": 0,
    }  # fmt: skip
    started = wire.NewEntry("turn_worker_started", b"{}", "w", turn="t")
    append(world, ledger, started, process=second)
    world.engine.lose(first, "agent_lost")
    assert not world.engine.session_logs.lost_turns
    world.engine.lose(second, "agent_lost")
    (lost,) = world.engine.session_logs.lost_turns
    assert lost == (UID, "s", "t", "agent_lost")


def test_what_is_unowned_makes_nobody_an_owner_and_takes_a_turn_from_nobody(world: World) -> None:
    ledger, one, other = opened(world), world.process(pid=7), world.process(pid=8)
    payload = b'{"message_id":"m","content":"x"}'
    submit = wire.NewEntry("turn_submitted", payload, "t", turn="t")
    append(world, ledger, submit, process=one, unowned=True)
    assert read_line(ledger.pending[0].line).owner is None
    assert not one.turns
    append(world, ledger, wire.NewEntry("turn_worker_started", b"{}", "w", turn="t"), process=other)
    said = wire.NewEntry("turn_assistant_started", b'{"stream_id":"r"}', "a", turn="t")
    append(world, ledger, said, process=one, unowned=True)
    world.engine.lose(one, "agent_lost")
    assert not world.engine.session_logs.lost_turns
    assert other.turns
    ended = wire.NewEntry("turn_completed", b"{}", "c", turn="t")
    append(world, ledger, ended, process=one, unowned=True)
    assert not other.turns


def submitted(turn_id: str, message_id: str = "m", **more: str) -> wire.NewEntry:
    payload = json.dumps({"message_id": message_id, "content": "x", **more}).encode()
    return wire.NewEntry("turn_submitted", payload, turn_id, turn=turn_id)


def ended(turn_id: str) -> wire.NewEntry:
    return wire.NewEntry("turn_completed", b"{}", f"end of {turn_id}", turn=turn_id)


def test_a_retry_is_refused_only_while_another_works_on_the_newest_turn(world: World) -> None:
    """An older turn of the message may be open still, in a process that lives."""
    ledger, first, second = opened(world), world.process(pid=7), world.process(pid=8)
    append(world, ledger, submitted("t1"), process=first)
    with pytest.raises(Refusal) as refused:
        append(world, ledger, submitted("t2", retry_of="t1"), process=second)
    assert refused.value.code == "already_resumed"
    assert refused.value.got == "turn t1, submitted, process 7 of boot boot"
    append(world, ledger, submitted("other", "n"), process=first)
    append(world, ledger, submitted("t2", retry_of="t1"), process=first)
    append(
        world, ledger, wire.NewEntry("turn_worker_started", b"{}", "w", turn="t1"), process=first
    )
    with pytest.raises(Refusal, match="another process"):
        append(world, ledger, submitted("t3", retry_of="t1"), process=second)
    append(world, ledger, ended("t2"), process=first)
    append(world, ledger, submitted("t3", retry_of="t1"), process=second)
    assert set(first.turns) == {(UID, "s", "t1"), (UID, "s", "other")}
    append(world, ledger, ended("t3"), process=second)
    append(world, ledger, ended("t1"), ended("other"), process=first)
    assert world.engine.session_logs.workers(UID, "s") == {}


def test_behind_a_start_too_the_newest_open_turn_of_a_message_counts(world: World) -> None:
    ledger, first, second = opened(world), world.process(pid=7), world.process(pid=8)
    append(world, ledger, submitted("t1"), submitted("t2", retry_of="t1"), process=first)
    append(world, ledger, ended("t2"), process=first)
    append(world, ledger, submitted("t3", retry_of="t1"), process=second)
    world.engine.session_logs.forget(ledger, 0.0)
    world.engine.session_logs.open[UID, "s"] = ledger
    for turn_id, owner in (("t1", first), ("t3", second)):
        world.engine.session_logs.own((UID, "s", turn_id), owner, "m")
    world.engine.session_logs.look_for_passed(ledger)
    append(world, ledger, submitted("t4", retry_of="t3"), process=second)
    with pytest.raises(Refusal, match="another process"):
        append(world, ledger, submitted("t5", retry_of="t1"), process=first)


@pytest.mark.parametrize("of_one_message", [True, False])
def test_a_retry_looks_at_the_newest_turns_of_its_message_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, of_one_message: bool
) -> None:
    """An Append takes 1,000 of them in one step, and a session may have thousands of open turns."""
    ledger, process, other = opened(world), world.process(pid=7), world.process(pid=8)
    append(world, ledger, submitted("t0"), process=process)
    for number in range(1, 100):
        name = {"retry_of": "t0"} if of_one_message else {"message_id": f"m{number}"}
        append(world, ledger, submitted(f"t{number}", **name), process=process)
    looked, turn = list[str](), Journal.turn

    def look(journal: Journal, turn_id: str) -> TurnState | None:
        looked.append(turn_id)
        return turn(journal, turn_id)

    monkeypatch.setattr(Journal, "turn", look)
    append(world, ledger, submitted("new", retry_of="t0"), process=process)
    with pytest.raises(Refusal, match="another process"):
        append(world, ledger, submitted("late", retry_of="t0"), process=other)
    assert len(looked) < 30
    assert len(world.engine.session_logs.workers(UID, "s")) == 101


def test_workers_of_a_session_are_found_without_a_look_at_others(world: World) -> None:
    process = world.process()
    for number in range(50):
        ledger = opened(world, f"s{number}")
        append(world, ledger, submitted("t"), process=process)
    logs = world.engine.session_logs
    assert logs.workers(UID, "s7") == {"t": process}
    assert (logs.workers(UID + 1, "s7"), logs.workers(UID, "none")) == ({}, {})
    logs.forget(logs.open[UID, "s7"], 0.0)
    assert (logs.workers(UID, "s7"), len(process.turns)) == ({}, 49)


def test_an_ended_turn_is_nobodys(world: World) -> None:
    ledger, process = opened(world), world.process()
    payload = b'{"message_id":"m","content":"x"}'
    append(
        world,
        ledger,
        wire.NewEntry("turn_submitted", payload, "t", turn="t"),
        wire.NewEntry("turn_completed", b"{}", "c", turn="t"),
        process=process,
    )
    assert not process.turns
    world.engine.lose(process, "agent_lost")
    assert not world.engine.session_logs.lost_turns


def test_turns_are_lost_in_the_order_they_were_taken_on(world: World) -> None:
    """Not in that of hashes, which differ from process to process: lines would, too."""
    ledger, process = opened(world), world.process()
    names = [f"t{number}" for number in range(8)]
    for name in names:
        payload = b'{"message_id":"%s","content":"x"}' % name.encode()
        submit = wire.NewEntry("turn_submitted", payload, name, turn=name)
        append(world, ledger, submit, process=process)
    world.engine.lose(process, "agent_lost")
    assert [turn.turn_id for turn in world.engine.session_logs.lost_turns] == names


def test_what_is_forgotten_leaves_nothing_to_write(world: World) -> None:
    ledger, process = opened(world), world.process()
    payload = b'{"message_id":"m","content":"x"}'
    submit = wire.NewEntry("turn_submitted", payload, "t", turn="t")
    append(world, ledger, submit, process=process)
    world.engine.session_logs.forget(ledger, 0.0)
    assert world.engine.session_logs.pending_bytes == 0
    assert not process.turns
    assert not world.flush()


def test_a_line_is_an_event_of_its_own_kind(world: World) -> None:
    ledger = opened(world)
    append(world, ledger, entry("a"))
    assert ledger.stream is not None
    begin, item = world.items(ledger.stream)
    assert isinstance(begin, records.Begin)
    assert begin.producer == b""
    assert isinstance(item, records.Happened)
    assert isinstance(item.event, wire.Custom)
    assert item.event.kind == LINE_KIND
    assert Pending(item.event.seq, item.event.payload) == ledger.pending[0]
    assert msgspec.json.decode(item.event.payload)["seq"] == 1


def test_an_entry_waits_since_it_came(world: World) -> None:
    """Not since agents were last read: nobody may stream for an hour."""
    ledger = opened(world)
    world.engine.since = 1.0
    now = 5000.0
    world.engine.session_logs.append(ledger, [entry("a")], None, None, 1, now)
    assert world.engine.schedule.oldest == now


@pytest.mark.parametrize(
    "payload",
    [b'{"a":' + b"[" * 250 + b"]" * 250 + b"}", b'{"a":1e999}', b'{"a":"\xed\xa0\x80"}'],
    ids=["deep", "beyond", "half"],
)
def test_what_no_view_could_tell_again_is_not_taken(world: World, payload: bytes) -> None:
    ledger = opened(world)
    with pytest.raises(Refusal) as refused:
        append(world, ledger, wire.NewEntry("app.x", payload, "a"))
    assert refused.value.code == "bad_payload"
    many = b'{"a":[' + b",".join([b"[]"] * 300) + b"]}"
    append(world, ledger, wire.NewEntry("app.x", many, "b"))


def test_what_may_have_been_given_is_leapt_over_once(world: World) -> None:
    """Y1: and the stream says so, for the start that can read what lies between."""
    ledger = opened(world)
    ledger.possible_leap = possible_leap = Leap(1, 7, ["wal/1"])
    assert not ledger.is_begun
    with pytest.raises(Refusal) as stale:
        append(world, ledger, entry("a"), expected_seq=0)
    assert (stale.value.code, stale.value.limit) == ("stale", "7")
    assert append(world, ledger, entry("a"), expected_seq=7) == [wire.Placed(8, "a")]
    assert append(world, ledger, entry("b")) == [wire.Placed(9, "b")]
    assert ledger.stream is not None
    assert (ledger.stream.begin.number, ledger.stream.begin.meta) == (7, LEAPT)
    assert (ledger.leaps, ledger.possible_leap, ledger.is_begun) == ([possible_leap], None, True)
