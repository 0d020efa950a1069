"""What one user has asked and not been answered: long requests, refused ones included.

How long the others were kept is printed; that they are served, and what memory it costs, decides.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import walld_client
from daemon_process import DaemonProcess, environment, until
from strangers import as_user, needs_root, resident_bytes
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
from wire_peer import Daemon, Healthy, Peer, text_of

from bench.machine import peak_bytes
from walld import limits
from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

CHUNK = bytes(limits.FRAME_BYTES_MAX - 4 * limits.KIB)
UPLOADS = 1000
REFUSED = {
    "of a piece that nobody waits for": wire.PutArtifact(1, "s", b"a" * 32, 1 << 25, 7, CHUNK),
    "of a digest that is none": wire.PutArtifact(1, "s", b"a", 1 << 25, 0, CHUNK),
    "of other bytes": wire.PutArtifact(1, "s", b"a" * 32, len(CHUNK), 0, CHUNK),
    "of an id that is none": wire.PutArtifact(1, "", b"a" * 32, len(CHUNK), 0, CHUNK),
    "of an entry too long": wire.Append(1, "s", [wire.NewEntry("n", CHUNK, "a")]),
}
UPLOADS_FOR_EVER = """
import os, socket, sys
from walld_client.wire import framing, messages as wire
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(framing.encode(wire.Hello(1, "query", os.urandom(16))))
peer.recv(1 << 20)
asked = framing.encode(wire.PutArtifact(1, "s", b"a" * 32, 1 << 25, 7, bytes((1 << 20) - 4096)))
for number in range(int(sys.argv[2])):
    peer.sendall(asked)
    peer.recv(1 << 20)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for one test."""
    with Daemon(tmp_path) as running:
        yield running


def test_thousands_of_refused_uploads_of_one_connection(daemon: Daemon) -> None:
    """Each left its megabyte in a cycle of references: 2.2 GB in 3 s of anybody."""
    with Healthy(daemon) as healthy:
        healthy.say("before")
        before, most, waited = resident_bytes(daemon.process.pid), 0, 0.0
        command = [sys.executable, "-c", UPLOADS_FOR_EVER, daemon.socket_path, str(UPLOADS)]
        uploading = subprocess.Popen(command, env=environment())
        try:
            while uploading.poll() is None:
                at = time.monotonic()
                healthy.say(".")
                waited = max(waited, time.monotonic() - at)
                most = max(most, resident_bytes(daemon.process.pid))
                assert most < 200 * limits.MIB, f"{most >> 20} MiB"
        finally:
            uploading.kill()
            uploading.wait()
        assert uploading.returncode == 0
        print(f"\n{UPLOADS} refused uploads of 1 MiB: {before >> 20} to {most >> 20} MiB, "
              f"an ack after at most {waited * 1000:.0f} ms")  # fmt: skip
        assert daemon.counted("artifact_offset") == UPLOADS
        assert text_of(healthy.recovered()) == "".join(healthy.said)


@pytest.mark.parametrize("kind", REFUSED)
def test_no_refusal_keeps_what_it_refused(daemon: Daemon, kind: str) -> None:
    """Whatever it is refused for."""
    asked = encode(REFUSED[kind])
    with Peer(daemon, "query") as peer:
        for _ in range(10):
            peer.socket.sendall(asked)
            assert isinstance(peer.hear(), wire.Error)
        before = resident_bytes(daemon.process.pid)
        for _ in range(100):
            peer.socket.sendall(asked)
            assert isinstance(peer.hear(), wire.Error)
        assert resident_bytes(daemon.process.pid) - before < 20 * limits.MIB


def test_many_connections_keep_nothing_of_what_they_asked(daemon: Daemon) -> None:
    """Each kept its last request for as long as it stayed."""
    asked = encode(REFUSED["of a piece that nobody waits for"])
    with ExitStack() as held:
        peers = [held.enter_context(Peer(daemon, "query")) for _ in range(400)]
        before = resident_bytes(daemon.process.pid)
        for peer in peers:
            peer.socket.sendall(asked)
            assert isinstance(peer.hear(), wire.Error)
        grown = resident_bytes(daemon.process.pid) - before
        print(f"\n400 that were refused a megabyte and stay: +{grown >> 20} MiB")
        assert grown < 400 * 40 * limits.KIB


def test_many_long_requests_at_once_wait_in_the_kernel(daemon: Daemon) -> None:
    """All are answered, a part at a time; and another process meanwhile."""
    asked = encode(REFUSED["of other bytes"])
    most = 0
    with ExitStack() as held:
        peers = [held.enter_context(Peer(daemon, "query")) for _ in range(400)]
        before = resident_bytes(daemon.process.pid)
        for peer in peers:
            peer.socket.setblocking(False)
        rests = dict.fromkeys(peers, asked)
        heard = dict.fromkeys(peers, b"")

        def moves() -> bool:
            nonlocal most
            for peer in peers:
                try:
                    if rests[peer]:
                        rests[peer] = rests[peer][peer.socket.send(rests[peer]) :]
                    elif not heard[peer]:
                        heard[peer] = peer.socket.recv(65536)
                except BlockingIOError:
                    continue
            most = max(most, resident_bytes(daemon.process.pid) - before)
            return all(heard.values())

        with Healthy(daemon) as healthy:
            healthy.say("before")
            until(moves, "each is answered")
            healthy.say("after")
    print(f"\n400 uploads of a megabyte at once: +{most >> 20} MiB")
    assert all(b"artifact_hash" in one for one in heard.values()), set(heard.values())
    assert most < limits.IN_FLIGHT_BYTES_MAX + 400 * 40 * limits.KIB


def test_frames_that_are_begun_and_left_keep_a_user_waiting_and_nobody_else(
    daemon: Daemon,
) -> None:
    """That user's others wait in the kernel until those have had their time; short ones do not."""
    begun = encode(REFUSED["of other bytes"])[:-1]
    with ExitStack() as held:
        before, began = resident_bytes(daemon.process.pid), time.monotonic()
        for _ in range(40):
            peer = held.enter_context(Peer(daemon, "query"))
            peer.socket.setblocking(False)
            peer.socket.send(begun)
        other = held.enter_context(Peer(daemon, "query"))
        other.ask(wire.HasPartial(1, "s"))
        short = time.monotonic() - began
        payload = b'{"text":"' + b"x" * 20_000 + b'"}'
        other.ask(wire.Append(2, "s", [wire.NewEntry("n", payload, "a")]))
        grown = resident_bytes(daemon.process.pid) - before
        print(f"\nbeside frames that are begun and left: {short:.1f} s, a long one "
              f"{time.monotonic() - began:.1f} s, +{grown >> 20} MiB")  # fmt: skip
        assert grown < limits.IN_FLIGHT_BYTES_MAX


ASKS_FOR_A_VIEW = """
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[2])
peer.sendall(bytes.fromhex(sys.argv[3]))
said = b""
while b"text 189 " not in said and b"view_length" not in said:
    piece = peer.recv(1 << 18)
    assert piece, said[-200:]
    said = said[-20:] + piece
print("view_length" if b"view_length" in said else "told")
"""


def write_long(daemon: DaemonProcess, uid: int, count: int) -> None:
    """A session of so many messages of 250 KiB, while no daemon runs."""
    previous, lines = chain_of(header_line(uid, "long")), list[bytes]()
    for seq in range(1, count + 1):
        text = f"text {seq - 1} ".encode() + b"x" * 250 * limits.KIB
        payload = b'{"role":"user","content":"%s"}' % text
        parent = f"e{seq - 1}" if lines else None
        lines.append(make_line(seq, f"e{seq}", 1, "message", payload, previous, parent=parent))
        previous = chain_of(lines[-1])
    disk = RealDisk(str(daemon.data))
    try:
        LedgerStore(disk).append(uid, "long", 1, lines)
    finally:
        disk.close()


@needs_root
def test_long_views_of_several_users_take_turns(
    make_daemon: Callable[..., DaemonProcess], tmp_path: Path
) -> None:
    """Each as long as a view may be: three at a time were 400 MB."""
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    daemon.reader.session("short").message("user", "hello")
    assert daemon.terminate() == 0
    users = (61001, 61002, 61003)
    for uid in users:
        write_long(daemon, uid, 190)
    daemon.start()
    assert daemon.process is not None
    before = resident_bytes(daemon.process.pid)
    hello = encode(wire.Hello(1, "query", os.urandom(16)))
    asked = (hello + encode(wire.Project(1, "long", "messages", b"{}"))).hex()
    with ThreadPoolExecutor() as threads:
        others = [
            threads.submit(as_user, uid, ASKS_FOR_A_VIEW, daemon.socket_path, asked)
            for uid in users
        ]
        count = most = 0
        while not all(one.done() for one in others):
            assert len(daemon.reader.session("short").messages()) == 1
            count += 1
            most = max(most, resident_bytes(daemon.process.pid))
    assert [one.result() for one in others] == ["told"] * len(users)
    assert count > 3, "nobody was there beside them"
    print(f"\n3 views of 46 MiB: {before >> 20} to {most >> 20} MiB")
    assert most < 200 * limits.MIB


@pytest.mark.parametrize(("count", "is_made"), [(200, True), (1100, False)])
def test_a_fork_of_a_long_session_holds_a_bounded_part(
    make_daemon: Callable[..., DaemonProcess], count: int, is_made: bool
) -> None:
    """Of 50 MB it took 280 MB: any user's of 525 MB ended the daemon."""
    daemon = make_daemon().start()
    assert daemon.terminate() == 0
    write_long(daemon, os.geteuid(), count)
    daemon.is_executed = True  # its peak of memory is its own
    daemon.start()
    assert daemon.process is not None
    before = resident_bytes(daemon.process.pid)
    client = walld_client.connect(daemon.socket_path, timeout=120)
    try:
        if is_made:
            client.session("long").fork(None, "copy")
            assert client.session("copy").append("app.note", {}).seq == count + 2
        else:
            with pytest.raises(walld_client.Refused, match="view_length"):
                client.session("long").fork(None, "copy")
            assert client.session("copy").messages() is None
        grown = peak_bytes(daemon.process.pid) - before
    finally:
        client.close()
    print(f"\na fork of {count * 250 >> 10} MiB: +{grown >> 20} MiB")
    assert grown < (4 * count * 250 * limits.KIB if is_made else limits.FORK_BYTES_MAX * 5 // 4)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="says how glibc's malloc is set")
def test_what_long_views_took_goes_back_to_the_system(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """It stayed with the daemon for good: 31 MiB behind these, more with each hour of a soak."""
    daemon = make_daemon()
    daemon.is_executed = True  # else it has the memory of the process that it is forked from
    daemon.start()
    assert daemon.process is not None
    before, client = resident_bytes(daemon.process.pid), daemon.reader
    for at in range(2):
        session = client.session(f"s{at}")
        for _ in range(30):
            session.message("user", "x" * 200_000)
            session.message("assistant", "y" * 3000)
        for view in ("messages", "transcript"):
            assert session.project(view)
        reply = client.reply(f"r{at}")
        for _ in range(2000):
            reply.token("word " * 40)
        assert reply.drain(20)
        assert client.recover(f"r{at}")
        reply.end()
        reply.release()
        client.delete(f"s{at}")

    def grown() -> int:
        assert daemon.process is not None
        return resident_bytes(daemon.process.pid) - before

    until(lambda: grown() < 12 * limits.MIB, "as little memory as before")
