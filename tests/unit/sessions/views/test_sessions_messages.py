"""The conversation of a path: undo, edit, compaction, branches, replies that were said anew."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log, contents

from walld.sessions.state.errors import BadArgument
from walld.sessions.views.audit import audit
from walld.sessions.views.messages import edit_target, messages


def four() -> Log:
    log = Log()
    for content in "abcd":
        log.say("user" if content in "ac" else "assistant", content)
    return log


def seen(log: Log, **more: Any) -> list[Any] | None:
    return contents(messages(log.events, **more))


def test_undo_and_never_written() -> None:
    log = four()
    log.add("undo", {"n": 3})
    assert seen(log) == ["a"]
    log.add("undo", {"n": 5})
    assert seen(log) == []
    assert messages([]) is None
    log.say("user", "new")
    assert seen(log) == ["new"]


def test_a_list_that_is_too_long_for_one_entry_goes_on_in_the_next() -> None:
    log = four()
    said = [{"role": "user", "content": content} for content in "xyz"]
    log.add("message_edit", {"messages": said[:2]})
    log.add("message_edit", {"messages": said[2:], "append": True})
    assert seen(log) == ["x", "y", "z"]
    log.add("compaction", {"replacement": said[:1]})
    log.add("compaction", {"replacement": said[1:], "append": True})
    log.say("assistant", "so")
    assert seen(log) == ["x", "y", "z", "so"]
    assert seen(log, compacted=False) == ["x", "y", "z", "so"]
    log.add("undo", {"n": 2})
    assert seen(log) == ["x", "y"]
    log.add("compaction", {"replacement": said[:1]})
    assert seen(log) == ["x"]


def test_the_summary_of_a_branch_is_told_on_the_other() -> None:
    log = four()
    log.add("leaf", {"target": "e1"})
    log.add("branch_summary", {"target": "e1", "text": "b was wrong"})
    log.say("assistant", "c")
    told = messages(log.events) or []
    assert [one["content"] for one in told] == ["a", "b was wrong", "c"]
    assert (told[1]["role"], told[1]["_branch_summary"]) == ("user", "e6")
    assert seen(log, branch="e4") == ["a", "b", "c", "d"]
    log.add("leaf", {"target": None})
    log.add("branch_summary", {"target": None, "text": "all of it"})
    log.add("branch_summary", {"target": None, "text": ""})
    assert seen(log) == ["all of it"]
    log.add("undo", {"n": 1})
    assert seen(log) == []


def test_only_notes_are_a_session_that_was_written() -> None:
    log = Log()
    log.add("setting", {"key": "k", "value": 1})
    assert messages(log.events) == []


def test_a_submission_is_a_user_message_and_a_retry_is_none() -> None:
    log = Log()
    said = {"content": "hello", "attachments": [{"name": "f"}]}
    log.submit("t", **said)
    log.add("turn_submitted", said | {"retry_of": "t"}, turn="t2")
    assert messages(log.events) == [
        {
            "role": "user",
            "content": "hello",
            "attachments": [{"name": "f"}],
            "_turn": "t",
            "_message_id": "m-t",
        }
    ]


def test_messages_are_verbatim() -> None:
    log = Log()
    log.say("assistant", [{"type": "text", "text": "x\ud83d"}], meta={"a": [1]}, reasoning="r")
    assert messages(log.events) == [log.events[0].payload]


def test_an_edit_by_entry_by_message_and_of_the_whole_list() -> None:
    log = Log()
    log.submit("t", "a")
    second = log.say("assistant", "b")
    log.add("message_edit", {"target": second, "message": {"role": "assistant", "content": "B"}})
    log.add("message_edit", {"target": "m-t", "message": {"role": "user", "content": "A"}})
    assert seen(log) == ["A", "B"]
    log.add("message_edit", {"target": "m-t", "message": {"role": "user", "content": "AA"}})
    assert seen(log) == ["AA", "B"]
    kept = {"role": "user", "content": "only", "_message_id": "m-t"}
    log.add("message_edit", {"messages": [kept]})
    assert seen(log) == ["only"]
    log.add("message_edit", {"target": second, "message": {"role": "user", "content": "gone"}})
    assert seen(log) == ["only"]
    log.add("message_edit", {"target": "m-t", "message": {"role": "user", "content": "again"}})
    assert seen(log) == ["again"]
    log.add("undo", {"n": 1})
    assert seen(log) == []


def test_an_id_of_an_entry_goes_before_the_message_id_of_another() -> None:
    log = Log()
    log.submit("t", "a")
    log.add("message", {"role": "assistant", "content": "b"}, id="m-t")
    assert edit_target(log.events, "m-t") == {"target": "m-t"}
    log.add("message_edit", {"target": "m-t", "message": {"role": "assistant", "content": "B"}})
    assert seen(log) == ["a", "B"]
    (turn,) = audit(log.events)["turns"]
    assert turn["edited"] is None
    meant = {"target": "e1", "message_id": "m-t", "message": {"role": "user", "content": "A"}}
    log.add("message_edit", meant)
    assert seen(log) == ["A", "B"]
    (turn,) = audit(log.events)["turns"]
    assert turn["edited"] == {"role": "user", "content": "A"}


def test_an_id_that_another_branch_has_keeps_no_message_from_its_edit() -> None:
    log = Log()
    log.add("message", {"role": "user", "content": "left"}, id="m-t")
    log.add("leaf", {"target": None})
    log.submit("t", "a")
    found = edit_target(log.events, "m-t")
    assert found == {"target": log.events[-1].id, "message_id": "m-t"}
    log.add("message_edit", found | {"message": {"role": "user", "content": "A"}})
    assert seen(log) == ["A"]


def test_an_edit_on_one_branch_is_none_on_another() -> None:
    log = four()
    log.add("message_edit", {"target": "e1", "message": {"role": "user", "content": "A"}})
    assert seen(log) == ["A", "b", "c", "d"]
    assert seen(log, branch="e4") == ["a", "b", "c", "d"]


def test_the_later_compaction_on_the_path_counts() -> None:
    log = four()
    log.add("compaction", {"summary": "one", "first_kept": "e3"})
    assert seen(log) == ["one", "c", "d"]
    later = log.say("user", "e")
    log.add("compaction", {"summary": "two", "first_kept": later})
    assert seen(log) == ["two", "e"]
    assert seen(log, compacted=False) == ["a", "b", "c", "d", "e"]
    assert seen(log, branch=later) == ["one", "c", "d", "e"]
    log.add("leaf", {"target": "e4"})
    assert seen(log) == ["a", "b", "c", "d"]
    log.add("leaf", {"target": None})
    log.say("user", "from the beginning")
    assert seen(log) == ["from the beginning"]
    with pytest.raises(BadArgument, match="got nowhere") as error:
        messages(log.events, branch="nowhere")
    assert error.value.code == "unknown_entry"


def test_the_first_kept_may_be_no_message_or_a_message_id() -> None:
    log = four()
    marker = log.add("note", {})
    log.submit("t", "e")
    log.say("assistant", "f")
    log.add("compaction", {"summary": "one", "first_kept": marker})
    assert seen(log) == ["one", "e", "f"]
    log.add("compaction", {"summary": "two", "first_kept": "m-t"})
    assert seen(log) == ["two", "e", "f"]


def test_a_first_kept_on_another_branch_keeps_nothing() -> None:
    log = four()
    log.add("leaf", {"target": "e2"})
    problem = log.offer("compaction", {"summary": "one", "first_kept": "e4"})
    assert problem is not None
    assert problem.code == "not_on_path"
    log.stand("compaction", {"summary": "one", "first_kept": "e4"})
    assert seen(log) == ["one"]


def test_an_undo_behind_a_compaction_counts_what_is_seen() -> None:
    log = four()
    log.add("compaction", {"summary": "one", "first_kept": "e4"})
    log.add("undo", {"n": 1})
    assert seen(log) == ["one"]
    assert seen(log, compacted=False) == ["a", "b", "c"]
    log.add("undo", {"n": 1})
    assert seen(log) == []
    assert seen(log, compacted=False) == []


def test_an_undo_of_all_that_is_seen_takes_nothing_that_an_empty_compaction_hid() -> None:
    log = four()
    log.add("compaction", {"replacement": []})
    log.say("user", "e")
    log.add("undo", {"n": 1})
    assert seen(log) == []
    assert seen(log, compacted=False) == ["a", "b", "c", "d"]
    log.add("undo", {"n": 1})
    assert seen(log, compacted=False) == []


def test_the_first_kept_is_kept_and_nothing_before_it() -> None:
    log = four()
    for first, kept in (("e1", "abcd"), ("e2", "bcd"), ("e3", "cd"), ("e4", "d")):
        at = log.add("compaction", {"summary": "one", "first_kept": first}, leaf=False)
        assert seen(log, branch=at) == ["one", *kept]


def test_a_replacement_is_edited_and_undone_like_any_list() -> None:
    log = four()
    said = [{"role": "user", "content": "x", "_message_id": "m"}, {"role": "user", "content": "y"}]
    log.submit("t", "e")
    said[1]["_message_id"] = "m-t"
    log.add("compaction", {"replacement": said})
    log.add("message_edit", {"target": "m-t", "message": {"role": "user", "content": "E"}})
    assert seen(log) == ["x", "E"]
    assert seen(log, compacted=False) == ["a", "b", "c", "d", "E"]
    log.add("undo", {"n": 1})
    assert seen(log) == ["x"]


def reply(log: Log, content: str, seq: int = 1, stream: str = "s") -> str:
    return log.say("assistant", content, _wal_stream=stream, _wal_seq=seq)


def test_a_reply_said_anew_stands_where_it_stood() -> None:
    """An equal prompt and answer of an earlier turn are untouched."""
    log = Log()
    for turn, stream in (("t1", "s1"), ("t2", "s2")):
        log.submit(turn, "same")
        reply(log, "answer", stream=stream)
    log.say("user", "more")
    reply(log, "recovered", stream="s2")
    reply(log, "next step", seq=9, stream="s2")
    assert seen(log) == ["same", "answer", "same", "recovered", "more", "next step"]


def test_a_stream_id_that_two_turns_have_is_two_replies() -> None:
    """The later turn's answer takes the place of none but its own."""
    log = Log()
    for turn in ("t1", "t2"):
        log.submit(turn, turn)
        log.say("assistant", f"{turn} answers", _wal_stream="s", _wal_seq=1, _turn=turn)
    told = ["t1", "t1 answers", "t2", "t2 answers"]
    assert seen(log) == told
    for turn in ("t1", "t2"):
        log.say("assistant", f"{turn} recovered", _wal_stream="s", _wal_seq=1, _turn=turn)
    assert seen(log) == ["t1", "t1 recovered", "t2", "t2 recovered"]
    log.add("undo", {"n": 1})
    log.say("assistant", "t1 again", _wal_stream="s", _wal_seq=1, _turn="t1")
    log.say("assistant", "t2 again", _wal_stream="s", _wal_seq=1, _turn="t2")
    assert seen(log) == ["t1", "t1 again", "t2"]


def test_a_reply_that_does_not_say_its_turn_is_the_last_of_its_stream() -> None:
    log = Log()
    reply(log, "recovered")
    log.say("assistant", "whole", _wal_stream="s", _wal_seq=1, _turn="t")
    assert seen(log) == ["whole"]
    reply(log, "once more")
    assert seen(log) == ["once more"]
    log.say("assistant", "of another turn", _wal_stream="s", _wal_seq=1, _turn="u")
    assert seen(log) == ["once more", "of another turn"]
    reply(log, "the last")
    assert seen(log) == ["once more", "the last"]


def test_what_was_undone_or_edited_is_not_said_anew() -> None:
    log = Log()
    first = reply(log, "a")
    log.add("undo", {"n": 1})
    reply(log, "a again")
    assert seen(log) == []
    second = reply(log, "b", seq=2)
    log.add("message_edit", {"target": second, "message": {"role": "assistant", "content": "B"}})
    reply(log, "b again", seq=2)
    assert seen(log) == ["B"]
    assert seen(log, branch=first) == ["a"]


def test_a_malformed_entry_does_nothing() -> None:
    log = four()
    broken = [
        log.events[0].__class__(seq=5 + n, id=f"x{n}", parent="e4", type=kind, payload=payload)
        for n, (kind, payload) in enumerate(
            [
                ("message", {"content": "no role"}),
                ("undo", {"n": "3"}),
                ("compaction", {"replacement": 1}),
                ("message_edit", {"messages": [1]}),
            ]
        )
    ]
    for event in broken:
        assert contents(messages([*log.events, event])) == ["a", "b", "c", "d"]


def test_an_unknown_format() -> None:
    with pytest.raises(BadArgument, match="got xml, limit plain"):
        messages([], "xml")


def test_ten_thousand_entries_are_no_quadratic_walk() -> None:
    log = Log()
    for number in range(1000):
        entry = log.say("user", str(number))
        log.add("message_edit", {"target": entry, "message": {"role": "user", "content": "x"}})
        log.add("compaction", {"summary": "s", "first_kept": entry})
    assert seen(log) == ["s", "x"]
