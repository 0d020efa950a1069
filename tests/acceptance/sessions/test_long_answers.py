"""All events of a session of hundreds of megabytes, and views of it: bounded memory (Q3, Q5).

The session's file is written by the ledger's own store beside no daemon: it is as one would be.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
import walld_client
from daemon_process import DaemonProcess
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode, frame_bytes
from wire_peer import Peer

from walld import limits
from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

PAYLOAD = b'{"role":"user","content":"%s"}' % (b"x" * (250 * limits.KIB))
LINES = 500
READERS = 10
MOST_BYTES = 64 * limits.MIB
_PATIENCE_SECONDS = 300.0
"""Each of the ten has the whole session read once beside it."""


def write_session(data: Path, session_id: str, count: int, payload: bytes = PAYLOAD) -> list[int]:
    """The lengths of its lines."""
    disk, uid = RealDisk(str(data)), os.getuid()
    try:
        store, lengths = LedgerStore(disk), list[int]()
        previous = chain_of(header_line(uid, session_id))
        for first in range(1, count + 1, 100):
            lines = list[bytes]()
            for seq in range(first, min(first + 100, count + 1)):
                parent = f"e{seq - 1}" if seq > 1 else None
                role = b"user" if seq % 2 else b"assistant"
                said = payload.replace(b"user", role, 1)
                line = make_line(seq, f"e{seq}", 1, "message", said, previous, parent=parent)
                previous = chain_of(line)
                lines.append(line)
            store.append(uid, session_id, first, lines)
            lengths += map(len, lines)
    finally:
        disk.close()
    return lengths


def memory(daemon: DaemonProcess, name: str) -> int:
    """VmRSS: now; VmHWM: at its most."""
    assert daemon.process is not None
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def answer_frames(peer: Peer, rest: bytearray) -> Iterator[wire.Answer | wire.Error]:
    """Answers as they come, none of them kept."""
    decode = msgspec.msgpack.Decoder(wire.Answer | wire.Error).decode
    while True:
        while len(rest) < (needed := frame_bytes(rest)) or needed == 4:
            received = peer.socket.recv(1 << 18)
            assert received, "the daemon closed the connection"
            rest += received
        body = bytes(rest[4:needed])
        del rest[:needed]
        yield decode(body)


@pytest.fixture
def long_session(daemon: DaemonProcess) -> Iterator[list[int]]:
    """The session "long", of some 300 MB, and a daemon that has it. Lengths of its lines."""
    assert daemon.terminate() == 0
    lengths = write_session(daemon.data, "long", LINES)
    daemon.start()
    daemon.reader.session("other").message("user", "x")
    yield lengths
    daemon.kill()
    shutil.rmtree(daemon.data)  # pytest keeps folders


def test_a_question_for_all_events_costs_the_daemon_no_more_than_a_few(
    daemon: DaemonProcess, long_session: list[int]
) -> None:
    """1 GB of memory for a session of 525 MB, of anybody."""
    before = memory(daemon, "VmRSS")
    expected = sum(5 + length for length in long_session)  # each is a bin 32
    with Peer(daemon, "query") as peer:
        peer.socket.sendall(encode(wire.Events(1, "long", breaks=True)))
        count, begin, most = 0, b"", 0
        for answer in answer_frames(peer, bytearray()):
            assert isinstance(answer, wire.Answer), answer
            assert len(answer.chunk) == limits.ANSWER_CHUNK_BYTES or answer.last
            begin = begin or answer.chunk[:4]
            count += len(answer.chunk)
            if answer.last:
                break
        most = memory(daemon, "VmHWM")
    assert begin == b"\x92\xdc" + LINES.to_bytes(2, "big")
    assert count == 4 + expected + len(msgspec.msgpack.encode(b"[]"))
    print(f"\n{count >> 20} MiB of events: +{most - before >> 20} MiB")
    assert most - before < MOST_BYTES


def test_a_view_of_it_is_made_of_what_it_needs_or_refused(
    daemon: DaemonProcess, long_session: list[int]
) -> None:
    """Of 293 MB it was 1.2 GB for the messages, 640 MB for the gate."""
    client = walld_client.connect(daemon.socket_path, timeout=_PATIENCE_SECONDS)
    session = client.session("long")
    assert memory(daemon, "VmHWM") < MOST_BYTES
    gate = session.resume_check()
    assert (gate["status"], gate["as_of"]) == ("ok", f"e{LINES}")
    state = session.state()
    assert state is not None
    assert state["counts"]["events"] == state["last_seq"] == LINES
    for_gate = memory(daemon, "VmHWM")
    assert for_gate < 2 * MOST_BYTES
    said = f"{LINES} events of {sum(long_session)} bytes, limit {limits.VIEW_BYTES_MAX} bytes"
    for ask in (session.messages, partial(session.find, "message")):
        with pytest.raises(walld_client.Refused, match="view_length") as refused:
            ask()
        assert said in str(refused.value)
        assert "messages(last=, before=)" in str(refused.value)
    assert len(session.find("message", last=2)) == 2
    page = session.messages(last=2)
    assert page.before is not None
    leaf = page.before.partition(".")[2]
    for first, before in ((LINES - 1, None), (21, f"23.{leaf}"), (1, f"3.{leaf}")):
        # Of the first pages nearly all of the session stands behind.
        page = session.messages(last=2, before=before)
        assert [len(one["content"]) for one in page] == [250 * limits.KIB] * 2
        assert page.before == (f"{first}.{leaf}" if first > 1 else None)
    client.close()
    most = memory(daemon, "VmHWM")
    print(f"\nof {sum(long_session) >> 20} MiB: gate {for_gate >> 20}, all {most >> 20} MiB")
    assert most < 200 * limits.MIB


def test_many_that_ask_for_all_and_do_not_read_cost_a_bounded_part(
    daemon: DaemonProcess, long_session: list[int]
) -> None:
    """And whoever reads has his answer beside them, a short one at once."""
    before = memory(daemon, "VmRSS")
    with ExitStack() as held:
        for _ in range(READERS):
            peer = held.enter_context(Peer(daemon, "query"))
            peer.socket.sendall(encode(wire.Events(1, "long")))
        client = walld_client.connect(daemon.socket_path, timeout=_PATIENCE_SECONDS)
        held.callback(client.close)
        reader = client.session("other")
        for _ in range(20):
            assert [one["payload"]["content"] for one in reader.events()] == ["x"]
        grown = memory(daemon, "VmHWM") - before
    print(f"\n{READERS} that read nothing of {sum(long_session) >> 20} MiB: +{grown >> 20} MiB")
    assert grown < limits.IN_FLIGHT_BYTES_MAX + MOST_BYTES


def test_a_delete_in_the_middle_ends_it_with_an_error(
    daemon: DaemonProcess, long_session: list[int]
) -> None:
    """Never a frame that is wrong, nor the lines of the session that was begun behind it."""
    with Peer(daemon, "query") as peer:
        peer.socket.sendall(encode(wire.Events(1, "long")))
        for heard, answer in enumerate(answer_frames(peer, bytearray())):
            if isinstance(answer, wire.Error):
                assert heard > 4
                assert answer.code == "behind", answer
                assert answer.id == 1
                break
            assert not answer.last, "whole, of a session that is gone"
            if heard == 4:
                daemon.reader.delete("long")
                daemon.reader.session("long").message("user", "begun anew")
        again = peer.ask(wire.Events(2, "long"))
        assert b"begun anew" in again


def test_a_long_answer_is_what_its_pages_are(daemon: DaemonProcess) -> None:
    """Bytes as those of short answers, whose encoder knows all of it, lines that wait included."""
    session = daemon.reader.session("s")
    texts = [f"{n} " + "y" * (n * 397 % 40_000) for n in range(200)]
    for text in texts:
        session.message("user", text)
    with Peer(daemon, "query") as peer:
        pages = list[bytes]()
        while page := msgspec.msgpack.decode(
            peer.ask(wire.Events(len(pages) + 1, "s", len(pages), 7))
        ):
            pages += page
        assert len(pages) == len(texts)
        assert sum(map(len, pages)) > 2 * limits.ANSWER_HELD_BYTES_MAX
        for after, limit in ((0, 0), (1, 0), (0, 199), (3, 150), (0, 200)):
            wanted = pages[after:][: limit or None]
            request = wire.Events(1000 + after + limit, "s", after, limit)
            assert peer.ask(request) == msgspec.msgpack.encode(wanted)
            with_breaks = msgspec.structs.replace(request, id=request.id + 1, breaks=True)
            assert peer.ask(with_breaks) == msgspec.msgpack.encode((wanted, b"[]"))
