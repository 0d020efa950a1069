"""What may be appended, where it hangs, and the state as bytes."""

from __future__ import annotations

import contextlib
import os
import sys
from types import FrameType
from typing import Any

import msgspec
import pytest
from session_log import INTENT, Log

from walld.errors import FormatError
from walld.sessions.state import journal
from walld.sessions.state.events import Event, Problem
from walld.sessions.state.hash_index import SeqsBlock
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.snapshot import decode_piece


def refused(problem: Problem | None, code: str, got: str) -> None:
    assert problem is not None
    assert problem.code == code
    assert problem.got == got
    assert problem.limit


def test_an_entry_hangs_on_the_leaf_of_its_moment() -> None:
    log = Log()
    first = log.say("user", "a")
    aside = log.add("note", {}, leaf=False)
    second = log.say("assistant", "b")
    assert [event.parent for event in log.events] == [None, first, first]
    log.add("label", {"target": aside, "text": "x"})
    assert log.state.leaf == second
    log.add("leaf", {"target": aside})
    third = log.say("user", "c")
    assert log.events[-1].parent == aside
    log.add("leaf", {"target": None})
    assert log.state.leaf is None
    log.say("user", "d")
    assert log.events[-1].parent is None
    log.add("note", {}, parent=third)
    assert log.events[-1].parent == third


def test_what_is_refused_by_its_place() -> None:
    log = Log()
    log.say("user", "a")
    refused(log.offer("note", {}, id="e1"), "duplicate_id", "e1")
    refused(log.offer("note", {}, id="n", parent="n"), "cycle", "n")
    refused(log.offer("note", {}, parent="e9"), "unknown_parent", "e9")
    refused(log.offer("note", {}, id=""), "bad_id", "''")
    assert log.state.last_seq == 1


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        ("label", {"target": "e9", "text": "x"}),
        ("message_edit", {"target": "e9", "message": {"role": "user"}}),
        ("leaf", {"target": "e9"}),
        ("compaction", {"summary": "s", "first_kept": "e9"}),
        ("branch_summary", {"target": "e9", "text": "s"}),
    ],
)
def test_an_unknown_target(type: str, payload: dict[str, object]) -> None:  # noqa: A002
    log = Log()
    log.say("user", "a")
    refused(log.offer(type, payload), "unknown_target", "e9")


def test_an_edit_may_name_a_message() -> None:
    log = Log()
    log.submit("t")
    log.add("message_edit", {"target": "m-t", "message": {"role": "user", "content": "x"}})
    refused(log.offer("label", {"target": "m-t"}), "unknown_target", "m-t")


def test_an_edit_or_a_compaction_of_another_branch_is_refused() -> None:
    log = Log()
    log.say("user", "a")
    aside = log.submit("t")
    log.add("leaf", {"target": "e1"})
    log.say("user", "b")
    said = {"role": "user", "content": "x"}
    for target in (aside, "m-t"):
        for kind, payload in (
            ("message_edit", {"target": target, "message": said}),
            ("compaction", {"summary": "s", "first_kept": target}),
        ):
            problem = log.offer(kind, payload)
            assert problem is not None
            field = "target" if kind == "message_edit" else "first_kept"
            assert problem == (
                "not_on_path",
                f"{field} of {kind} is not on the path",
                target,
                "what stands on the path to e4",
            )
            assert log.offer(kind, payload, parent=aside, leaf=False) is None
            assert log.offer(kind, payload | {field: "e1"}, leaf=False) is None
    log.add("leaf", {"target": None})
    problem = log.offer("message_edit", {"target": "e1", "message": said})
    assert problem is not None
    assert problem.limit == "what stands on the path to the beginning"


def test_keys_remember_their_first_entry() -> None:
    log = Log()
    log.add("note", {}, key="k")
    log.add("note", {}, key="k")
    log.add("other", {}, key="k")
    state = SessionState.from_base(log.state.to_base())
    assert (state.seq_of_key("k"), state.seq_of_key("k", "other")) == (1, 3)
    assert (state.seq_of_key("k", "note"), state.seq_of_key("k", "third")) == (1, None)
    assert state.seq_of_key("nokey") is None
    assert (state.seqs_of_key("k"), state.seqs_of_key("k", "note")) == ((1, 3), (1, 2))
    assert (state.seqs_of_key("k", "other"), state.seqs_of_key("k", "third")) == ((3, 3), None)
    log.state.to_base()
    log.add("note", {}, key="k")
    log.add("note", {}, key="k")
    assert log.state.seqs_of_key("k") == (1, 5)
    log.state.revert(log.undos[-1])
    assert log.state.seqs_of_key("k", "note") == (1, 4)
    log.state.revert(log.undos[-2])
    assert log.state.to_base() == state.to_base()
    log.state.apply(log.events[3])
    assert SessionState.from_base(log.state.to_base()).seqs_of_key("k") == (1, 4)


def test_of_turns_with_one_stream_the_first_is_found_also_in_a_snapshot() -> None:
    for ended in ((), ("t1",), ("t2",), ("t1", "t2")):
        log = Log()
        log.submit("t1")
        log.submit("t2")
        log.add("turn_assistant_started", {"stream_id": "s"}, turn="t2")
        state = SessionState.from_base(log.state.to_base())
        log.add("turn_assistant_started", {"stream_id": "s"}, turn="t1")
        state.apply(log.events[-1])
        for turn in ended:
            log.add("turn_completed", {}, turn=turn)
            state.apply(log.events[-1])
            again = SessionState.from_base(log.state.to_base())
            for one in (log.state, state, again):
                found = one.journal.turn_of_stream("s")
                assert found is not None
                assert found.turn_id == "t1", ended
        assert state.to_base() == log.state.to_base()


def test_the_newest_is_reverted_and_no_other() -> None:
    log = Log()
    log.submit("t")
    before = log.state.to_base()
    log.add("turn_completed", {}, turn="t", key="k")
    log.add("note", {})
    with pytest.raises(AssertionError, match="not the newest"):
        log.state.revert(log.undos[1])
    log.state.revert(log.undos[2])
    log.state.revert(log.undos[1])
    assert log.state.to_base() == before
    with pytest.raises(AssertionError, match="snapshot"):
        log.state.revert(log.undos[0])


def test_what_cannot_be_applied_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """N2, also where it raises in the middle."""
    log = Log()
    log.submit("t")
    log.tool("t", "c")
    before = SessionState.from_base(log.state.to_base()).to_base()
    for name, payload in (
        ("turn_submitted", {"message_id": "new", "content": "x"}),
        ("turn_worker_started", {"stream_id": "s"}),
        ("tool_intent", {**INTENT, "call_id": "other"}),
        ("tool_started", {"call_id": "c"}),
    ):
        turn = "t2" if name == "turn_submitted" else "t"
        event = Event(seq=4, id="e4", parent="e2", type=name, payload=payload, turn=turn, key="k")

        def broken(*given: object) -> None:
            raise ValueError("planted")

        for where in ("_take_turn", "_take_tool"):
            whole = getattr(SessionState, where)

            def behind(*given: object, whole: Any = whole) -> None:
                whole(*given)
                broken()

            for planted in (broken, behind):
                with monkeypatch.context() as patched:
                    patched.setattr(SessionState, where, planted)
                    with contextlib.suppress(ValueError):
                        log.state.revert(log.state.apply(event))
                assert (log.state.last_seq, log.state.leaf, len(log.state.parents)) == (2, "e2", 3)
        assert log.state.journal.turn("t2") is None
    assert log.state.to_base() == before


def test_turns_at_rest_wake_with_their_tools() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started", "finished")
    log.add("turn_completed", {}, turn="t")
    log.submit("t2")
    state = SessionState.from_base(log.state.to_base())
    assert [turn.turn_id for turn in state.journal.open_turns()] == ["t2"]
    repeated = state.submitted({"message_id": "m-t", "content": "hello"})
    assert repeated is not None
    assert (repeated.turn_id, repeated.terminal_seq) == ("t", 5)
    tool = state.journal.tool("t", "c")
    assert tool is not None
    assert tool.outcome == "done"
    end = Event(seq=7, id="e7", parent="e6", type="turn_completed", turn="t")
    assert state.check(end) is None
    state.apply(end)
    woken = SessionState.from_base(state.to_base()).journal.turn("t")
    assert woken is not None
    assert woken.collisions == [7]


def test_a_delta_is_small_and_holds_what_is_new() -> None:
    log = Log()
    for _ in range(50):
        log.say("user", "x" * 1000)
    assert len(log.state.take_delta()) < 50 * 20
    log.say("user", "y")
    delta = log.state.take_delta()
    behind = SessionState()
    for event in log.events[:50]:
        behind.apply(event)
    behind.apply_delta(delta)
    assert behind.to_base() == log.state.to_base()
    with pytest.raises(FormatError, match="limit 52"):
        behind.apply_delta(delta)


def test_who_opens_a_session_applies_no_step_of_its_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The increments of a long session are of thousands of events."""
    log = Log()
    base, deltas = log.state.to_base(), []
    for at in range(40):
        log.submit(f"t{at}")
        log.tool(f"t{at}", "c", "started", "finished")
        log.add("note", {}, key=f"k{at % 7}")
        if at % 3:
            log.add("turn_completed", {}, turn=f"t{at}")
        if at % 4 == 0:
            deltas.append(log.state.take_delta())
    deltas.append(log.state.take_delta())

    def taken(*given: object) -> None:
        raise AssertionError("an event is applied")

    with monkeypatch.context() as patched:
        patched.setattr(SessionState, "_take", taken)
        state = SessionState.from_base(base)
        for delta in deltas:
            state.apply_delta(delta)
    assert state.seqs_of_key("k6", "note") == log.state.seqs_of_key("k6", "note")
    assert len(state.journal.open_turns()) == 14
    assert state.to_base() == log.state.to_base()


def test_a_turn_of_thousands_of_replies_costs_each_entry_the_same() -> None:
    """Nothing is copied that grows with the turn, and an increment says the new replies alone."""
    log = Log()
    log.submit("t")
    log.tool("t", "c", "started")
    base, deltas = log.state.to_base(), []
    for at in range(3000):
        log.add("turn_assistant_started", {"stream_id": f"s{at:05d}"}, turn="t")
        if at % 50 == 49:
            deltas.append(log.state.take_delta())
        if at in (0, 1499, 2999):
            log.add("turn_assistant_started", {"stream_id": "late"}, turn="t")
            undo, turn = log.undos.pop(), log.state.journal.turn("t")
            assert turn is not None
            assert undo.turn is not None
            assert log.state.journal.turn_of_stream("late") is turn
            assert undo.turn.turn.stream_ids is turn.stream_ids
            log.state.revert(undo)
            assert log.state.journal.turn_of_stream("late") is None
    assert max(map(len, deltas)) < min(map(len, deltas)) + 100
    state = SessionState.from_base(base)
    for delta in deltas:
        state.apply_delta(delta)
    names = [f"s{at:05d}" for at in range(3000)]
    for one in (state, log.state):
        turn = one.journal.turn("t")
        assert turn is not None
        assert list(turn.stream_ids) == names
        assert all(one.journal.turn_of_stream(name) is turn for name in names)
    assert state.to_base() == log.state.to_base()


def test_what_comes_behind_the_end_of_a_turn_reads_its_many_replies_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is put to rest anew, and each of its replies leads to it already."""
    log = Log()
    log.submit("t")
    for at in range(500):
        log.add("turn_assistant_started", {"stream_id": f"s{at}"}, turn="t")
    log.add("turn_completed", {}, turn="t")
    log.state.take_delta()
    log.add("turn_completed", {}, turn="t")
    with monkeypatch.context() as patched:
        patched.setattr(journal._at_rest, "decode", None)
        log.state.take_delta()
    found = log.state.journal.turn_of_stream("s499")
    assert found is not None
    assert found.collisions == [503]


def test_a_delta_that_says_what_cannot_be() -> None:
    log = Log()
    log.submit("t")
    before = log.state.to_base()
    log.tool("t", "c")
    log.add("label", {"target": "e1", "text": "x"})
    delta = decode_piece(log.state.take_delta())
    for changed, told in (
        ({"after": 2}, "begins at seq 3, limit 2"),
        ({"last_seq": 2}, "2 ids, limit 1"),
        ({"last_seq": 2_000_000}, "missing in a row"),
        ({"parents": [9, 1]}, "parents of no entry"),
        ({"parents": [3]}, "parents of no entry"),
        ({"ids": SeqsBlock(memoryview(b"x" * 16), memoryview(b"x"))}, "not of this machine"),
    ):
        piece = msgspec.structs.replace(delta, **changed)
        with pytest.raises(FormatError, match=told):
            SessionState.from_base(before).apply_delta(msgspec.msgpack.encode(piece))
    SessionState.from_base(before).apply_delta(msgspec.msgpack.encode(delta))


def test_bytes_that_are_no_snapshot() -> None:
    base = Log().state.to_base()
    for broken in (b"", b"\xc1", base[:-1], base + b"x", msgspec.msgpack.encode([2]), b"[", b"[2]"):
        with pytest.raises(FormatError):
            SessionState.from_base(broken)
    with pytest.raises(FormatError, match="version 9, limit 5"):
        SessionState.from_base(msgspec.msgpack.encode([9, "of the future"]))
    with pytest.raises(FormatError):
        SessionState().apply_delta(b"\xc1")


def test_a_base_of_a_hundred_thousand_loads_in_a_moment() -> None:
    """As many lines of Python run as for one of ten: what is large is read by the library alone."""
    _, few = _loaded(10)
    (loaded, parent, base), many = _loaded(100_000)
    assert many == few
    assert len(base) < 100_000 * 13
    assert (loaded.leaf, loaded.last_seq, len(loaded.ids)) == (parent, 100_000, 100_000)


def _loaded(events: int) -> tuple[tuple[SessionState, str | None, bytes], int]:
    """A state of so many events from its base, its leaf, the base; lines that ran to load it."""
    state = SessionState()
    parent = None
    for seq in range(1, events + 1):
        state.apply(Event(seq=seq, id=os.urandom(11).hex(), parent=parent, type="note"))
        parent = state.leaf
    base = state.to_base()
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        loaded = SessionState.from_base(base)
    finally:
        sys.settrace(before)
    return (loaded, parent, base), lines
