"""The daemon killed while sessions are written: what was acknowledged is there, once (N1, N4)."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable

import msgspec
import pytest
from daemon_process import DaemonProcess, until
from walld_client.wire import messages as wire
from wire_peer import Peer

from walld.ledger.line import chain_of, header_line, read_line

SESSIONS = ("a", "../b", "c/ü")


def message(ident: str, text: str) -> wire.NewEntry:
    payload = json.dumps({"role": "user", "content": text}).encode()
    return wire.NewEntry("message", payload, ident, once=True)


def append(
    daemon: DaemonProcess, session_id: str, *entries: wire.NewEntry, level: str = "synced"
) -> list[wire.Placed]:
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        answer = peer.ask(wire.Append(1, session_id, list(entries), level=level))
    return msgspec.msgpack.decode(answer, type=list[wire.Placed])


def lines(daemon: DaemonProcess, session_id: str) -> list[bytes]:
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        found = msgspec.msgpack.decode(peer.ask(wire.Events(1, session_id)))
    return [] if found is None else found


def check_chained(uid: int, session_id: str, found: list[bytes]) -> None:
    """Dense seqs, whole lines, each chained to the one before."""
    before = header_line(uid, session_id)
    for seq, text in enumerate(found, 1):
        line = read_line(text)
        assert (line.seq, line.chain) == (seq, chain_of(before))
        before = text


class Writer(threading.Thread):
    """Appends to a session until told to stop, asking again whatever the daemon does."""

    def __init__(self, daemon: DaemonProcess, session_id: str, level: str) -> None:
        super().__init__()
        self.daemon_process, self.session_id, self.level = daemon, session_id, level
        self.acked: list[str] = []
        self.stopped = False

    def run(self) -> None:
        number = 0
        while not self.stopped:
            ident = f"{self.session_id}#{number}"
            with contextlib.suppress(OSError, AssertionError):
                append(
                    self.daemon_process,
                    self.session_id,
                    message(ident, ident * 20),
                    level=self.level,
                )
                self.acked.append(ident)
                number += 1
                continue
            time.sleep(0.02)


@pytest.mark.parametrize("level", ["written", "synced"])
def test_what_was_acknowledged_is_there_once(daemon: DaemonProcess, level: str) -> None:
    writers = [Writer(daemon, session_id, level) for session_id in SESSIONS]
    for writer in writers:
        writer.start()
    try:
        for _ in range(4):
            time.sleep(0.4)
            daemon.restart()
    finally:
        for writer in writers:
            writer.stopped = True
        for writer in writers:
            writer.join()
    uid = daemon.data.stat().st_uid
    for writer in writers:
        found = lines(daemon, writer.session_id)
        check_chained(uid, writer.session_id, found)
        ids = [read_line(line).id for line in found]
        assert len(ids) == len(set(ids))
        assert len(writer.acked) > 20
        assert ids[: len(writer.acked)] == writer.acked
        assert len(ids) <= len(writer.acked) + 1
    assert daemon.status()["start"]["corrupt"] == 0


def test_log_and_file_hold_the_same_bytes(daemon: DaemonProcess) -> None:
    """A killed daemon's lines are in the log alone; after an orderly end they are in the file."""
    append(daemon, "s", *[message(f"m{n}", "x" * 50) for n in range(20)])
    before = lines(daemon, "s")
    daemon.restart()
    assert lines(daemon, "s") == before
    assert daemon.terminate() == 0
    (path,) = (daemon.data / "sessions").rglob("events.jsonl")
    uid = daemon.data.stat().st_uid
    assert path.read_bytes() == header_line(uid, "s") + b"".join(before)
    daemon.start()
    assert lines(daemon, "s") == before
    append(daemon, "s", message("next", "y"))
    check_chained(uid, "s", lines(daemon, "s"))


def test_a_checkpoint_lets_the_log_go(daemon: DaemonProcess) -> None:
    append(daemon, "s", *[message(f"m{n}", "x" * 50) for n in range(60)])
    until(lambda: daemon.status()["wal_live_bytes"] == 0, "a log without live bytes")
    assert len(lines(daemon, "s")) == 60
    daemon.restart()
    assert len(lines(daemon, "s")) == 60


def test_a_session_deleted_leaves_no_byte(make_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = make_daemon("--reclaim-seconds", "1").start()
    for session_id in ("gone", "stays"):
        for n in range(60):
            append(daemon, session_id, message(f"{session_id}{n}", f"secret of {session_id}"))
    with Peer(daemon, "agent") as agent:  # type: ignore[arg-type]
        said = b"live words of gone"
        agent.send(wire.Start(1, 0, "live", "gone"), wire.Token(1, 1, said))
        agent.drain()
        with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
            was_there = msgspec.msgpack.decode(peer.ask(wire.Delete(1, "gone")))
        assert was_there is True
        assert lines(daemon, "gone") == []
        needles = (b"secret of gone", said)
        until(lambda: not daemon.holding(needles), "a directory without a byte of it")
        assert len(lines(daemon, "stays")) == 60
    daemon.restart()
    assert lines(daemon, "gone") == []


def test_killed_within_a_delete_the_next_one_leaves_no_byte(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """A delete that was answered is done; one that was not is asked again, and finds the rest."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    needle = b"secret words"
    for attempt in range(6):
        session = daemon.reader.session("s")
        session.artifact(needle * 1000, "text/plain")
        for text in ("of the file", "of the log"):
            entries = [{"type": "app.x", "payload": {"text": f"secret words {text}"}}] * 60
            session.append_many(entries[: 60 if text == "of the file" else 5])
        session.submit("secret words", attachments=[needle])
        with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
            peer.send(wire.Delete(1, "s"))
            time.sleep(attempt * 0.003)
            daemon.kill()
        daemon.start()
        daemon.reader.delete("s")
        assert session.messages() is None
        assert daemon.reader.recover_all("s") == []
        until(lambda: not daemon.holding([needle]), "a directory without a byte of it")
        left = list((daemon.data / "sessions").rglob("*"))
        assert [path.name for path in left] in ([], [".deleted"])


def test_a_torn_end_of_the_file_is_cut_and_kept(daemon: DaemonProcess) -> None:
    append(daemon, "s", *[message(f"m{n}", "x") for n in range(5)])
    before = lines(daemon, "s")
    assert daemon.terminate() == 0
    (path,) = (daemon.data / "sessions").rglob("events.jsonl")
    with path.open("ab") as file:
        file.write(b'{"seq":6,"id":"torn')
    daemon.start()
    assert lines(daemon, "s") == before
    append(daemon, "s", message("m5", "y"))
    assert daemon.terminate() == 0
    assert b"torn" not in path.read_bytes()
    kept = [each for each in (daemon.data / "quarantine").iterdir() if each.suffix != ".note"]
    assert any(each.read_bytes() == b'{"seq":6,"id":"torn' for each in kept)
    daemon.start()
    check_chained(daemon.data.stat().st_uid, "s", lines(daemon, "s"))
    assert daemon.reader.recover("nobody") is None, "what is kept of a session held no reply"
