"""Pages of messages by a real daemon: right beside appends, and made of the end of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import PATIENCE_SECONDS, DaemonProcess, MakeDaemon
from walld_client import Refused

from walld import limits
from walld.daemon.session_store.message_pages import MessagePages, _Known

TURNS = 120
_RESULT = "degrees " * 200


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> DaemonProcess:
    return make_daemon().start()


def talk(session: Any, first: int, last: int) -> None:
    """Turns of which each asks two tools: one by messages, one by the journal alone."""
    entries: list[dict[str, Any]] = []
    for number in range(first, last):
        turn = f"t{number}"
        call = {"id": "call_1", "name": "weather", "arguments": "{}"}
        risk = {"side_effect": "read", "resume_policy": "replay-from-event"}
        intent = {"call_id": "call_2", "tool": "time", "arguments": {}} | risk
        for kind, payload in (
            ("turn_submitted", {"content": f"question {number}", "message_id": f"m{number}"}),
            ("message", {"role": "assistant", "content": "I look.", "tool_calls": [call]}),
            ("message", {"role": "tool", "tool_call_id": "call_1", "content": _RESULT}),
            ("tool_intent", intent),
            ("tool_started", {"call_id": "call_2"}),
            ("tool_finished", {"call_id": "call_2", "result": "noon"}),
            ("message", {"role": "assistant", "content": f"answer {number}"}),
            ("turn_completed", {}),
        ):
            entries.append({"type": kind, "payload": payload, "turn": turn})
    for at in range(0, len(entries), 80):
        session.append_many(entries[at : at + 80])


def work(session: Any, steps: int) -> None:
    """One turn of many steps."""
    submitted = {"content": "do it", "message_id": "m"}
    entries: list[dict[str, Any]] = [
        {"type": "turn_submitted", "payload": submitted, "turn": "t"},
    ]
    for number in range(steps):
        call = {"id": f"call_{number}", "name": "weather", "arguments": "{}"}
        told = {"role": "tool", "tool_call_id": call["id"], "content": _RESULT}
        said = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
        entries += [{"type": "message", "payload": one, "turn": "t"} for one in (said, told)]
    for at in range(0, len(entries), 80):
        session.append_many(entries[at : at + 80])


def read_bytes(daemon: DaemonProcess) -> int:
    assert daemon.process is not None
    told = Path(f"/proc/{daemon.process.pid}/io").read_text().splitlines()
    return int(told[0].partition(":")[2])


def test_pages_are_slices_of_the_list_in_every_format(reader: Any) -> None:
    session = reader.session("s")
    talk(session, 0, TURNS)
    whole = session.messages()
    assert whole.before is None
    for last in (1, 2, 7, 50, 10_000):
        page = session.messages(last=last)
        assert page == whole[-len(page) :]
        assert min(last, len(whole)) <= len(page) <= last + 5
        assert (page.before is None) == (last == 10_000)
        sent = session.messages("openai", last=last)
        assert [one["content"] for one in sent] == [
            one["content"] for one in session.messages("openai")[-len(sent) :]
        ]
        assert session.messages("anthropic", last=last)[0]["role"] == "user"


def test_pages_by_cursors_are_the_whole_list_beside_appends(reader: Any) -> None:
    session = reader.session("s")
    talk(session, 0, TURNS)
    whole, listed = session.messages(), list[dict[str, Any]]()
    page = session.messages(last=20)
    for number in range(TURNS, 2 * TURNS):
        listed = [*page, *listed]
        if page.before is None:
            break
        talk(session, number, number + 1)
        page = session.messages(last=20, before=page.before)
    assert listed == whole
    assert session.messages(last=1) == session.messages()[-1:]


@pytest.mark.parametrize("is_one_turn", [False, True])
def test_a_page_reads_the_end_of_the_file(
    reader: Any, daemon: DaemonProcess, is_one_turn: bool
) -> None:
    session = reader.session("s")
    if is_one_turn:
        work(session, 1000)
    else:
        talk(session, 0, 1000)
    session.messages(last=10)  # makes the index
    took = []
    for _ in range(5):
        begun = read_bytes(daemon)
        page = session.messages(last=10)
        took.append(read_bytes(daemon) - begun)
    of_page, begun = min(took), read_bytes(daemon)  # a checkpoint may read beside some of them
    whole = session.messages()
    of_all = read_bytes(daemon) - begun
    assert page == whole[-len(page) :]
    assert of_page * 8 < of_all, f"{of_page} bytes for a page, {of_all} for all"


def test_a_session_that_was_begun_anew_is_another(reader: Any) -> None:
    session = reader.session("s")
    assert session.messages(last=3) is None
    talk(session, 0, 20)
    assert len(session.messages(last=3)) >= 3
    cursor = session.messages(last=3).before
    assert reader.delete("s") is True
    assert session.messages(last=3) is None
    talk(session, 50, 60)
    page = session.messages(last=3)
    assert page[-1]["content"] == "answer 59"
    assert page == session.messages()[-len(page) :]
    with pytest.raises(Refused, match="before") as refused:
        session.messages(last=3, before=cursor)
    assert refused.value.code == "stale"


def test_a_cursor_of_a_branch_that_was_left_is_stale(reader: Any) -> None:
    session = reader.session("s")
    talk(session, 0, 30)
    first = session.events()[0]["id"]
    page = session.messages(last=5)
    session.branch(first)
    session.message("user", "something else")
    with pytest.raises(Refused) as refused:
        session.messages(last=5, before=page.before)
    assert refused.value.code == "stale"
    assert session.messages(last=5) == session.messages()
    for wrong in ("", "no cursor", "1.2", "-1.0.x"):
        with pytest.raises(Refused):
            session.messages(last=5, before=wrong)
    with pytest.raises(ValueError, match="before needs last"):
        session.messages(before=page.before)


def test_an_undo_and_a_compaction_are_in_the_page(reader: Any) -> None:
    session = reader.session("s")
    talk(session, 0, 60)
    session.messages(last=5)
    for _ in range(3):
        session.undo(30)
        page = session.messages(last=5)
        assert page == session.messages()[-len(page) :]
    kept = session.events()[-40]["id"]
    session.compact("what was", first_kept=kept)
    session.message("user", "go on")
    whole = session.messages()
    assert session.messages(last=len(whole) + 5) == whole
    assert session.messages(last=2) == whole[-len(session.messages(last=2)) :]


def test_a_reply_that_is_not_released_is_in_the_page(reader: Any, agent: Obedient) -> None:
    session = reader.session("s")
    talk(session, 0, 60)
    session.messages(last=5)
    agent.do("""
turn = client.session("s").submit("deploy it", message_id="m")
reply = turn.reply(stream_id="r")
reply.token("I deploy. ")
reply.tool("deploy", {"env": "prod"}, call_id="c1")
reply.drain(10)
""")
    page = session.messages(last=5)
    assert page[-1]["content"] == "I deploy. "
    assert page == session.messages()[-len(page) :]
    agent.do("reply.end(); turn.completed()")
    page = session.messages(last=5)
    assert page[-1]["tool_calls"][0]["id"] == "c1"
    assert page == session.messages()[-len(page) :]


def test_a_damaged_file_is_read_as_a_whole(reader: Any, daemon: DaemonProcess) -> None:
    session = reader.session("s")
    talk(session, 0, 60)
    before = session.messages()
    reader.close()
    assert daemon.terminate() == 0
    (file,) = (daemon.data / "sessions").rglob("events.jsonl")
    text = bytearray(file.read_bytes())
    text[text.index(b"question 20")] ^= 1
    file.write_bytes(text)
    daemon.start()
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    session = client.session("s")
    whole = session.messages()
    assert len(whole) == len(before) - 1
    for _ in range(2):
        page = session.messages(last=5)
        assert page == whole[-len(page) :]
    listed, page = list(page), session.messages(last=50, before=page.before)
    while page:
        listed = [*page, *listed]
        page = session.messages(last=50, before=page.before) if page.before else []
    assert listed == whole
    client.close()


def test_the_index_that_was_asked_longest_ago_goes_first() -> None:
    nothing: Any = None
    pages, most = MessagePages(nothing, nothing, nothing, nothing), limits.TAIL_INDEX_BYTES_MAX
    for name in ("a", "b", "c", "b", "d"):
        pages._known.pop((1, name), None)
        known = _Known()
        known.held_bytes = most // 3
        pages._held_bytes = sum(one.held_bytes for one in pages._known.values())
        pages._keep((1, name), known)
    assert [name for _, name in pages._known] == ["c", "b", "d"]
    known = _Known()
    known.held_bytes = most + 1
    pages._keep((1, "e"), known)
    assert (pages._known, pages._held_bytes) == ({}, 0), "one that is too large alone, too"
