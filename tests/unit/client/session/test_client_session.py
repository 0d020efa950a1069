"""Sessions: what is appended, what is read, what is asked twice. Both colours, one script."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import walld_client
from colours import Coloured, connect
from fake_daemon import FakeDaemon
from fake_ledger import FakeLedger
from walld_client.limits import EVENTS_PAGE, PAYLOAD_BYTES_MAX
from walld_client.session.entries import json_text
from walld_client.wire import messages as wire

HIGH, LOW = "\ud83d", "\ude00"


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    yield client
    client.let_go()


def test_a_session_asks_nothing_until_it_is_used(client: Coloured, daemon: FakeDaemon) -> None:
    session = client.session("..")
    assert session.session_id == ".."
    assert ".." in repr(session.inner)
    assert daemon.peers == []
    with pytest.raises(ValueError, match="session_id is 0 bytes"):
        client.session("")


def test_what_appends_says_where(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    first = session.append("note", {"a": 1})
    assert (first.seq, first.is_new) == (1, True)
    own = session.append("note", id="mine", parent=first.id, leaf=False, cause="c", synced=True)
    assert (own.id, own.seq) == ("mine", 2)
    drawn, given = (request.entries[0] for request in ledger.asked)
    assert (drawn.once, given.once) == (True, False)
    assert (given.parent, given.leaf, given.cause) == (first.id, False, "c")
    assert [request.level for request in ledger.asked] == ["written", "synced"]
    assert 0 < drawn.at_ms < time.time() * 1000 + 1


def test_all_or_none(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    entries = session.append_many([{"type": "a"}, {"type": "b", "payload": {"n": 1}, "key": "k"}])
    assert [entry.seq for entry in entries] == [1, 2]
    assert len(ledger.asked) == 1
    assert session.append_many([]) == []
    with pytest.raises(TypeError, match="an entry has no paylod"):
        session.append_many([{"type": "a", "paylod": {}}])
    with pytest.raises(TypeError, match="must be a dict"):
        session.append("a", ["b"])
    with pytest.raises(ValueError, match="append fewer at once"):
        session.append_many([{"type": "a", "payload": {"x": "y" * 250_000}}] * 4)
    assert ledger.types("S") == ["a", "b"]


def test_once_and_expected_seq(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    first = session.append("a", key="k", once=True)
    again = session.append("a", key="k", once=True)
    assert (again.id, again.seq, again.is_new) == (first.id, 1, False)
    assert session.append("a", key="k").seq == 2, "without once a key may come twice"
    with pytest.raises(walld_client.Refused) as refused:
        session.append("a", expected_seq=1)
    assert (refused.value.code, refused.value.limit) == ("stale", "2")


def test_messages_and_what_changes_them(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    assert session.messages() is None
    entry = session.message("user", "hi", id="m1", name="Ada")
    session.edit("m1", role="user", content="hello")
    session.edit("m1", {"role": "user", "content": "hello"})
    session.edit([{"role": "user", "content": "new"}])
    session.undo(2)
    session.label(entry.id, "here")
    session.setting("mode", "fast")
    session.change_model("m-2")
    session.branch(entry.id, "b")
    session.branch(None)
    session.compact("so far", entry.id)
    session.compact(replacement=[{"role": "user", "content": "x"}])
    payloads = [(event["type"], event["payload"]) for event in ledger.sessions["S"]]
    assert payloads == [
        ("message", {"role": "user", "content": "hi", "name": "Ada"}),
        ("message_edit", {"target": "m1", "message": {"role": "user", "content": "hello"}}),
        ("message_edit", {"target": "m1", "message": {"role": "user", "content": "hello"}}),
        ("message_edit", {"messages": [{"role": "user", "content": "new"}]}),
        ("undo", {"n": 2}),
        ("label", {"target": "m1", "text": "here"}),
        ("setting", {"key": "mode", "value": "fast"}),
        ("model_change", {"model": "m-2"}),
        ("leaf", {"target": "m1", "name": "b"}),
        ("leaf", {"target": None}),
        ("compaction", {"summary": "so far", "first_kept": "m1"}),
        ("compaction", {"replacement": [{"role": "user", "content": "x"}]}),
    ]
    assert session.messages("openai", branch="m1", compacted=False)[0]["content"] == "hi"
    assert ledger.asked[-1].arguments == b'{"compacted":false,"branch":"m1"}'


def test_a_list_of_any_length_takes_as_many_entries_as_it_needs(
    client: Coloured, ledger: FakeLedger
) -> None:
    session = client.session("S")
    told = [{"role": "user", "content": f"{number} " + "x" * 200} for number in range(3000)]
    session.edit(told)
    session.compact(replacement=told)
    kept = [event["payload"] for event in ledger.sessions["S"]]
    assert [one.get("append", False) for one in kept] == [False, True, True] * 2
    for name, pieces in (("messages", kept[:3]), ("replacement", kept[3:])):
        assert [message for one in pieces for message in one[name]] == told
    assert len(ledger.asked) == 2, "all or none"
    session.edit([])
    assert ledger.sessions["S"][-1]["payload"] == {"messages": []}
    with pytest.raises(ValueError, match=r"limit 983040.*fewer"):
        session.edit(told * 2)


NESTED = reduce(lambda inner, _: {"a": inner}, range(5000), {})
"""Deeper than Python's own functions go."""


@pytest.mark.parametrize(
    ("call", "given", "error"),
    [
        ("undo", (0,), ValueError),
        ("undo", ("3",), TypeError),
        ("undo", (1.5,), TypeError),
        ("message", ("user", NESTED), ValueError),
        ("append", ("a", {"deep": NESTED}), ValueError),
        ("edit", ("m1",), TypeError),
        ("compact", (), TypeError),
        ("compact", ("so far",), TypeError),
        ("edit", ("m1", {"mine": "neither role nor content"}), TypeError),
        ("messages", ("xml",), ValueError),
        ("find", ("a", "", 0), ValueError),
        ("turn", (), TypeError),
        ("read_artifact", ("ab",), ValueError),
        ("append", (7,), TypeError),
        ("append", ("a", {}), None),
    ],
)
def test_mistakes_are_said_at_once(
    client: Coloured, call: str, given: tuple[Any, ...], error: type[Exception] | None
) -> None:
    session = client.session("S")
    if error is None:
        getattr(session, call)(*given)
        return
    with pytest.raises(error):
        getattr(session, call)(*given)


@pytest.mark.parametrize(
    ("call", "given", "named", "said"),
    [
        ("artifact", (5,), {}, "source must be bytes or a path, got int"),
        ("artifact", (b"x", 5), {}, "media_type must be a str or None, got int"),
        ("artifact", (b"x",), {"name": 5}, "name must be a str or None, got int"),
        ("edit", ({},), {"role": "user", "content": "x"}, "target must be a list .*, got dict"),
        ("edit", (b"m1",), {"role": "user", "content": "x"}, "target must be .*, got bytes"),
        ("edit", ([],), {"role": "user", "content": "x"}, "needs its id, a str"),
        ("edit", (["m1"],), {}, "target must be a list of messages .*, got str 'm1' in it"),
        ("compact", (), {"replacement": {}}, "replacement must be a list of dicts, got dict"),
        ("append", ("a",), {"once": 1}, "once must be True or False, got int"),
        ("append", ("a",), {"leaf": "no"}, "leaf must be True or False, got str"),
        ("append", ("a",), {"wait": None}, "wait must be True or False, got None"),
        ("append", ("a",), {"synced": "yes"}, "synced must be True or False, got str"),
        ("append", ("a",), {"expected_seq": "1"}, "expected_seq must be an int or None, got str"),
        ("append", ("a",), {"expected_seq": True}, "expected_seq must be .*, got bool"),
        ("append", ("a", []), {}, "payload must be a dict or None, got list"),
        ("append_many", ({"type": "a"},), {}, "entries must be a list of dicts, got dict"),
        (
            "append_many",
            ([{"type": "a"}, {}],),
            {},
            r"entries\[1\]: type must be a str, got nothing",
        ),
        (
            "append_many",
            ([{"typ": "a"}],),
            {},
            r"entries\[0\]: an entry has no typ, only type, payl",
        ),
        ("append_many", ([{"type": 5}],), {}, r"entries\[0\]: type must be a str, got int 5"),
        ("append_many", (["a"],), {}, "entries must be a list of dicts, got str 'a' in it"),
        ("message", ("user", "x"), {"expected_seq": "1"}, "expected_seq must be an int"),
        ("submit", ("x",), {"attachments": "out.txt"}, "attachments must be a list .*, got str"),
        ("submit", ("x",), {"attachments": b"\x05"}, "attachments must be a list .*, got bytes"),
        ("submit", ("x",), {"attachments": [b"", 5]}, "attachments must be .*, got int 5 in it"),
        ("checkpoint_workspace", (".", "f"), {}, "files must be a list of paths, got str"),
    ],
)
def test_a_value_of_another_kind_is_named_and_nothing_is_done(
    client: Coloured,
    ledger: FakeLedger,
    call: str,
    given: tuple[Any, ...],
    named: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(TypeError, match=said):
        getattr(client.session("S"), call)(*given, **named)
    assert not ledger.asked


@pytest.mark.parametrize("given", ["ab", "", "z" * 64, "ab " * 32, "é" * 64])
def test_what_is_no_hash_is_named_with_what_one_is(
    client: Coloured, ledger: FakeLedger, given: Any
) -> None:
    with pytest.raises(ValueError, match=r"sha256 is '.*', must be 64 hex digits"):
        client.session("S").read_artifact(given)
    assert not ledger.asked


def test_a_message_takes_what_an_entry_takes(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    seq = session.message("user", "a", expected_seq=0).seq
    with pytest.raises(walld_client.Refused, match="stale"):
        session.message("user", "b", expected_seq=0)
    session.message("user", "b", expected_seq=seq, cause="c", correlation="d", leaf=False)
    assert [one["payload"] for one in ledger.sessions["S"]] == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


def test_half_an_emoji_survives(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    session.message("user", HIGH, other=[1 << 70, float("nan"), {1: object}])
    sent = ledger.asked[0].entries[0].payload
    assert b"\\ud83d" in sent
    assert json_text({"\u00fc": "\\" + HIGH + "\u00fc"}) == b'{"\xc3\xbc":"\\\\\\ud83d\xc3\xbc"}'
    assert b"\n" not in sent
    (message,) = session.messages()
    assert message["content"] == HIGH
    session.message("user", HIGH + LOW)
    assert session.messages()[1]["content"] == "\U0001f600"


def test_long_content_is_put_beside_the_session(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    text = ("Grüße " + HIGH) * 100_000
    session.message("user", text)
    named = ledger.sessions["S"][0]["payload"]["content"]["_artifact"]
    assert named["size"] == len(text.encode("utf-8", "surrogatepass"))
    assert named["preview"].startswith("Grüße \ufffdGrüße")
    assert len(named["preview"]) == 1024
    assert session.messages()[0]["content"] == text
    blocks = [{"type": "text", "text": "x" * 1000}] * 400
    session.message("user", blocks)
    session.edit([{"role": "user", "content": "a"}, {"role": "user", "content": "y" * 300_000}])
    edited = ledger.sessions["S"][2]["payload"]["messages"]
    assert [list(one["content"]) if one["content"] != "a" else "a" for one in edited] == [
        "a",
        ["_artifact"],
    ]
    assert session.messages()[1]["content"] == blocks
    chunks = [one for one in ledger.asked if isinstance(one, wire.PutArtifact)]
    assert max(len(one.chunk) for one in chunks) == 512 * 1024
    appends = [one for one in ledger.asked if isinstance(one, wire.Append)]
    assert max(len(one.entries[0].payload) for one in appends) <= PAYLOAD_BYTES_MAX
    with pytest.raises(ValueError, match="no field of it is long"):
        session.append("a", {f"k{n}": n for n in range(40_000)})


def test_artifacts(client: Coloured, ledger: FakeLedger, tmp_path: Path) -> None:
    session = client.session("S")
    kept = session.artifact(b"\x00\x01", "image/png")
    assert (kept.seq, kept.size, session.read_artifact(kept.sha256)) == (1, 2, b"\x00\x01")
    assert session.artifact(b"").size == 0
    file = tmp_path / "long.txt"
    file.write_text("é" * 600_000)
    found = session.artifact(file, "text/plain", turn="t")
    event = ledger.sessions["S"][2]
    assert (event["payload"]["name"], event["turn"]) == ("long.txt", "t")
    assert event["payload"]["preview"] == "é" * 1024
    assert session.read_artifact(found.sha256) == file.read_bytes()
    with pytest.raises(walld_client.Refused, match="artifact_missing"):
        session.read_artifact("00" * 32)
    with pytest.raises(FileNotFoundError):
        session.artifact(tmp_path / "none")


def test_events_come_in_pages_and_by_branch(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    assert session.events() == []
    session.append_many([{"type": "a"}] * (EVENTS_PAGE + 5))
    assert [one["seq"] for one in session.events(3)] == list(range(4, EVENTS_PAGE + 6))
    second = session.events(1)[0]["id"]
    side = session.append("b", parent=second, leaf=False)
    assert [one["seq"] for one in session.events(1, branch=side.id)] == [2, side.seq]
    with pytest.raises(walld_client.Refused, match="unknown_entry"):
        session.events(branch="none")


def test_views(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    assert session.state() is None
    assert session.project("tree") is None
    assert session.find("a") == []
    for n in range(4):
        session.append("a", {"n": n}, key=f"x/{n}")
    assert [one["payload"]["n"] for one in session.find("a", "x/", last=2)] == [2, 3]
    assert session.find("a", "x/1")[0]["key"] == "x/1"
    assert len(session.find("a")) == 4
    ledger.views["pending"] = [{"what": HIGH}]
    assert session.project("pending") == [{"what": HIGH}]
    assert session.state()["last_seq"] == 4


def test_fork_sessions_and_delete(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("chat-1")
    first = session.append("a")
    session.append("b")
    other = session.fork(first.id, "chat-2")
    assert other.session_id == "chat-2"
    assert [one["type"] for one in other.events()] == ["a"]
    client.session("x").append("a")
    found = client.sessions("chat-")
    assert [(one.session_id, one.last_seq, one.last_at, one.bytes) for one in found] == [
        ("chat-1", 2, 1.5, 9),
        ("chat-2", 1, 1.5, 9),
    ]
    assert len(client.sessions()) == 3
    assert client.delete("chat-1")
    assert not client.delete("chat-1")


def test_redact_sees_every_text(path: str, ledger: FakeLedger) -> None:
    client = walld_client.connect(path, redact=lambda text: text.replace("secret", "***"))
    client.session("S").message("user", [{"text": "my secret"}], note="secret", key="secret")
    (event,) = ledger.sessions["S"]
    assert event["payload"] == {"role": "user", "content": [{"text": "my ***"}], "note": "***"}
    assert event["key"] == "secret"
    client.close()


def test_a_list_too_long_for_one_request_has_long_content_put_beside(
    client: Coloured, ledger: FakeLedger
) -> None:
    """None of the messages is long for an entry: all of them together are."""
    session = client.session("S")
    told = [{"role": "user", "content": f"{number} " + "x" * 12_000} for number in range(200)]
    session.edit(told)
    pieces = [event["payload"]["messages"] for event in ledger.sessions["S"]]
    listed = [message for piece in pieces for message in piece]
    assert [one["role"] for one in listed] == ["user"] * 200
    whole = {digest.hex(): held for (_, digest), held in ledger.artifacts.items()}
    for one, first in zip(listed, told, strict=True):
        content = one["content"]
        if isinstance(content, dict):
            content = whole[content["_artifact"]["sha256"]].decode()
        assert content == first["content"]
    appends = [one for one in ledger.asked if isinstance(one, wire.Append)]
    assert len(appends) == 1, "all or none"


@pytest.mark.parametrize("call", ["artifact", "submit"])
def test_what_is_no_file_is_no_artifact(
    client: Coloured, ledger: FakeLedger, tmp_path: Path, call: str
) -> None:
    """Nobody waits for the other end of a pipe."""
    session = client.session("S")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        given = {"content": "hi", "attachments": [path]} if call == "submit" else {"source": path}
        with pytest.raises(ValueError, match="is no file"):
            getattr(session, call)(**given)
    with pytest.raises(IsADirectoryError):
        session.artifact(tmp_path)
    assert ledger.sessions == {}


@pytest.mark.parametrize("timeout", [None, "a", True])
def test_a_timeout_that_is_no_number_is_named(client: Coloured, timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        client.session("S").submit("hi", timeout=timeout)


@pytest.mark.parametrize("timeout", [float("nan"), float("inf")])
def test_a_timeout_without_an_end_is_named(client: Coloured, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a finite number of seconds"):
        client.session("S").submit("hi", timeout=timeout)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_cannot_hold_is_named(
    client: Coloured, ledger: FakeLedger, number: float
) -> None:
    session = client.session("S")
    content = [{"type": "text", "score": number}, "x" * 300_000]
    for call in (
        lambda: session.message("user", content),
        lambda: session.submit(content),
        lambda: session.message("user", content, wait=False),
    ):
        with pytest.raises(ValueError, match=r"content\[0\]\['score'\] of a .* is NaN or infinite"):
            call()
    with pytest.raises(ValueError, match=r"messages\[0\]\['content'\].* is NaN"):
        session.edit([{"role": "user", "content": number}])
    assert ledger.sessions == {}
    session.message("user", {"none": None, "words": "null"})
    session.append("mine", {"n": number})
    assert ledger.sessions["S"][-1]["payload"] == {"n": None}


@pytest.mark.parametrize("anew", [0, 3, EVENTS_PAGE + 5])
def test_events_are_of_one_session_where_it_is_deleted_between_two_pages(
    client: Coloured, ledger: FakeLedger, anew: int
) -> None:
    session = client.session("S")
    session.append_many([{"type": "before"}] * (2 * EVENTS_PAGE))

    def deletes(_peer: Any, request: Any) -> bool:
        asked = [one for one in ledger.asked if isinstance(one, wire.Events)]
        if isinstance(request, wire.Events) and len(asked) == 2:
            del ledger.sessions["S"]
            for at in range(1, anew + 1):
                event = {"seq": at, "id": f"anew-{at}", "type": "behind"}
                ledger.sessions.setdefault("S", []).append(event)
        return False

    ledger.before = deletes
    assert [event["type"] for event in session.events()] == ["behind"] * anew
    ledger.before = lambda _peer, _request: False
    assert [one["seq"] for one in session.events(after=2)] == list(range(3, anew + 1))


def test_a_refusal_without_two_sides_names_none() -> None:
    full = walld_client.Refused("disk_full", "", "", "the disk is full")
    assert str(full) == "the disk is full (code disk_full)"
    stale = walld_client.Refused("stale", "1", "2")
    assert str(stale) == "stale (code stale, got 1, limit 2)"
