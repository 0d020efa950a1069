"""Ids are data: whatever stands in one, no file is named by it and nothing lies elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until
from walld_client.wire import messages as wire
from wire_peer import Peer

IDS = [
    "..",
    ".",
    "../../escaped",
    "/etc/walld-escaped",
    "a/../../../../escaped",
    "escaped\0hidden",
    "\0",
    "-rf",
    "~root",
    "$(touch escaped)",
    "`touch escaped`",
    "name\nwith\nlines",
    "\x1b[2J\x1b]0;escaped\x07",
    "\u202egnp.exe",
    "\u2066left\u2069",
    "CON",
    "x" * 255,
    "ü" * 512,
    ".hidden",
    ".tmp",
    "walld.sock",
    "LOCK",
    "%00",
    "%2e%2e%2f",
    "\ufeff",
    "e\u0301",
    "\u00e9",
]
SAFE = re.compile(r"[A-Za-z0-9._~%=+@,-]{1,255}")


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the daemon stands: what escapes relatively would lie here."""
    folder = tmp_path / "stand" / "here"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    yield folder
    found = [path for path in tmp_path.rglob("*") if "escaped" in path.name]
    assert found == []
    assert not os.path.lexists("/etc/walld-escaped")
    assert list(folder.iterdir()) == []


def test_evil_ids_are_kept_as_they_are_and_lie_where_all_partials_do(
    outside: Path, daemon: DaemonProcess, make_agent: object
) -> None:
    agent: Obedient = make_agent(daemon)  # type: ignore[operator]
    agent.do(f"replies = [client.reply(one, stream_id=one) for one in {IDS!r}]")
    agent.do("[reply.token('x') for reply in replies]; replies[-1].drain(20)")
    agent.kill()
    until(lambda: len(daemon.partials()) == len(IDS), "a partial of each")
    partials = [path.relative_to(daemon.data) for path in daemon.partials()]
    for path in partials:
        assert path.parts[:2] == ("partials", str(os.getuid()))
        assert len(path.parts) == 4, path
        assert all(SAFE.fullmatch(part) for part in path.parts), path
    for restarted in (False, True):
        if restarted:
            daemon.restart()
        found = {reply.stream_id: reply for reply in daemon.reader.recover_all()}
        assert set(found) == set(IDS)
        for one in IDS:
            assert (found[one].session_id, found[one].text) == (one, "x")
    for one in IDS:
        assert daemon.reader.resolve(one) is True
    until(lambda: daemon.partials() == [], "all removed")
    assert daemon.reader.recover_all() == []


def test_an_id_above_the_limit_is_refused_and_costs_nothing_else(daemon: DaemonProcess) -> None:
    for size in (1025, 64 * 1024, 1024 * 1024 - 64):
        long, fine = "i" * size, f"fine {size}"
        with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
            peer.send(wire.Start(1, 0, long, "s"))
            peer.send(wire.Start(2, 0, "r", long))
            peer.send(wire.Start(3, 0, fine, "s"), wire.Move(3, 1, long))
            for number, seq in ((1, 0), (2, 0), (3, 1)):
                refused = peer.hear()
                assert isinstance(refused, wire.Refused)
                assert (refused.stream, refused.seq, refused.code) == (number, seq, "id_length")
                assert f"{size} bytes" in refused.got
                assert "1024" in refused.limit
            peer.send(wire.Token(3, 2, b"goes on"))
            peer.drain()
            reply = daemon.reader.recover(stream_id=fine)
            assert reply is not None
            assert (reply.session_id, reply.text) == ("s", "goes on")
    assert len(daemon.reader.recover_all()) == 3


def test_an_id_that_is_no_text_is_refused(daemon: DaemonProcess) -> None:
    """Bytes that are no UTF-8, a lone surrogate, a number, nothing at all."""
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        for number, evil in enumerate((b"\xa2\xff\xfe", b"\xa3\xed\xa0\xbd", b"\x07", b"\xc0"), 1):
            body = b"\x95\x02" + bytes((number, 0)) + evil + b"\xa1s"
            peer.socket.sendall(len(body).to_bytes(4, "big") + body)
            refused = peer.hear()
            assert isinstance(refused, wire.Refused)
            assert (refused.stream, refused.code) == (number, "malformed_event")
        peer.drain()
    assert daemon.reader.recover_all() == []


def test_requests_with_evil_ids_find_nothing_and_touch_nothing(
    outside: Path, daemon: DaemonProcess
) -> None:
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        for number, one in enumerate([*IDS, "i" * 65536], 1):
            for request, nothing in (
                (wire.Recover(number, "latest", one), []),
                (wire.Recover(number, "all", None, one), []),
                (wire.HasPartial(number, one), False),
                (wire.Resolve(number, one), False),
                (wire.List(number, one), []),
            ):
                assert msgspec.msgpack.decode(peer.ask(request)) == nothing, one[:40]
    empty = {"LOCK", "00000000000000000001.wal", "made", "reserve"}
    assert {path.name for path in daemon.files()} == empty


def test_half_a_character_in_a_payload_ends_nothing(daemon: DaemonProcess) -> None:
    """JSON may hold what no wire takes: the error that shows it is one answer all the same."""

    def submitted(content: str, more: str) -> wire.Append:
        text = f'{{"content":"{content}",{more}}}'
        return wire.Append(1, "s", [wire.NewEntry("turn_submitted", text.encode(), content,
                                                  turn=content)])  # fmt: skip

    half = '"message_id":"\\ud800x"'
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        peer.ask(submitted("first", half))
        for request, code in (
            (submitted("second", half), "message_id_taken"),
            (submitted("third", '"message_id":"m","retry_of":"\\ud800x"'), "unknown_turn"),
        ):
            peer.send(request)
            said = peer.hear()
            assert isinstance(said, wire.Error)
            assert (said.code, said.got, said.id) == (code, "\\ud800x", 1)
        assert peer.ask(wire.Status(2))


def test_a_folder_whose_name_is_no_text_is_listed(daemon: DaemonProcess) -> None:
    odd = os.fsencode(daemon.data) + b"/sessions/%d/\xff\xfe" % os.getuid()
    os.makedirs(odd, 0o700)
    (daemon.data / f"sessions/{os.getuid()}/file").touch(0o600)
    Path(os.fsdecode(odd), "events.jsonl").write_bytes(b"none\n")
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        found = msgspec.msgpack.decode(peer.ask(wire.Sessions(1)), type=list[wire.SessionFacts])
        assert {one.session_id for one in found} == {"\\udcff\\udcfe", "file"}
        assert all(one.trouble for one in found)
