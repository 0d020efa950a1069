"""Damage is said wherever it could matter: never "nothing, proven", never a whole reply."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from agents.process import MakeAgent, Obedient
from daemon_process import DaemonProcess, MakeDaemon, until
from walld_client import Unavailable
from walld_client.encoding import event_frames
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld.disk.real import RealDisk
from walld.wal.log_scan import LogScan


def batches(daemon: DaemonProcess) -> list[tuple[Path, int, int]]:
    """(file, offset of the payload, its bytes) of every batch with records."""
    with RealDisk(str(daemon.data), read_only=True) as disk:
        return [
            (daemon.data / "wal" / f"{segment_id:020d}.wal", batch.offset + 28, len(batch.payload))
            for segment_id, batch in LogScan(disk)
            if batch.columns.flags
        ]


def spoil(place: tuple[Path, int, int]) -> None:
    file, offset, length = place
    content = bytearray(file.read_bytes())
    content[offset + length // 2] ^= 0x10
    file.write_bytes(content)


def said(daemon: DaemonProcess, agent: Obedient, *texts: str) -> None:
    """One reply, a batch a text, all of it synced, its process killed and its daemon too."""
    agent.do("reply = client.reply('s', stream_id='r')")
    for text in texts:
        agent.do(f"reply.token({text!r}); reply.drain(10, level='synced')")
    time.sleep(1.5)  # and the log says so itself
    daemon.kill()
    agent.kill()


def test_nothing_is_not_proven_where_a_beginning_was_lost(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "one ", "two ")
    spoil(batches(daemon)[0])
    daemon.start()
    with pytest.raises(Unavailable, match="quarantine"):
        daemon.reader.recover("s")
    assert daemon.reader.has_partial("s") is None
    # While the rest of it stands in the log each start finds it again, without its beginning.
    until(lambda: daemon.status()["wal_segments"] == 1, "the damaged segment's end")
    for path in (daemon.data / "quarantine").iterdir():
        path.unlink()
    daemon.kill()
    daemon.start()
    assert daemon.reader.recover("s") is None


def test_a_reply_whose_synced_end_was_lost_is_not_called_whole(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "The rate is 5.", " But that was last year.")
    spoil(batches(daemon)[1])
    daemon.start()
    for _ in range(2):
        until(lambda: daemon.status()["partials"] == 1, "kept")
        reply = daemon.reader.recover("s")
        assert reply is not None
        assert reply.text == "The rate is 5."
        assert reply.partial
        assert [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps] == [
            (2, 2, "corrupt")
        ]
        time.sleep(1.5)  # a partial has been made of it: the same again
    daemon.kill()


def test_what_a_start_made_durable_is_known_as_that_though_nothing_is_said_since(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """It was killed before its log said how far the last sync reached; the next one says so."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    for text in ("The rate is 5.", " But that was last year."):
        agent.do(f"reply.token({text!r}); reply.drain(10, level='synced')")
    daemon.restart()
    daemon.kill()
    agent.kill()
    spoil(batches(daemon)[1])
    daemon.start()
    reply = daemon.orphan("r")
    assert (reply.text, reply.partial) == ("The rate is 5.", True)
    assert [gap.verdict for gap in reply.gaps] == ["corrupt"]


def test_nothing_is_not_proven_where_a_kept_reply_is_damaged(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """P11: also among all, also while it runs, also of a body that a start does not read."""
    daemon = make_daemon().start()
    for number in (1, 2):
        agent = make_agent(daemon)
        agent.do(f"reply = client.reply('s{number}', stream_id='r{number}')")
        agent.do("reply.token('text ' * 200); reply.drain(10, level='synced')")
        agent.kill()
    until(lambda: len(daemon.partials()) == 2, "kept")
    until(lambda: daemon.status()["wal_live_bytes"] == 0, "read from there from now on")
    # While the log still has them a start finds them there, whole.
    until(lambda: len(daemon.holding([b"text text"])) == 2, "out of the log")
    damaged = {}
    for path in daemon.partials():
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(content)
        damaged[path.name] = bytes(content)
    for ask in (daemon.reader.recover_all, daemon.reader.orphans, daemon.reader.recover_all):
        with pytest.raises(Unavailable, match="quarantine"):
            ask()
    assert daemon.cli("ls").returncode == 1
    kept = [p for p in (daemon.data / "quarantine").iterdir() if p.suffix != ".note"]
    assert sorted(p.read_bytes() for p in kept) == sorted(damaged.values())
    daemon.restart()
    with pytest.raises(Unavailable, match="quarantine"):
        daemon.reader.recover_all()


def test_a_damaged_beginning_costs_what_it_held(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """What is carried begins with its Begin, though the record that held it does not verify."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    for number in range(5):
        agent.do(f"reply.token('{number} '); reply.drain(10, level='synced')")
    agent.do("gone = client.reply('t'); gone.token('x' * 9000); gone.drain(10, level='synced')")
    before = daemon.segments()
    spoil(batches(daemon)[0])
    agent.do("gone.end(); gone.release()")
    until(lambda: not set(before) & set(daemon.segments()), "carried")
    agent.do("reply.drain(10, level='synced')")
    daemon.kill()
    agent.kill()
    daemon.start()
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert reply.text == "1 2 3 4 "
    # "corrupt" also now, when the damaged bytes are in quarantine/ alone.
    assert [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps] == [(1, 1, "corrupt")]


def test_a_loss_in_the_middle_is_said_to_who_comes_back(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """K4, P9: by seqs, in the log and in a number."""

    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    for text in ("one ", "two ", "three ", "four "):
        agent.do(f"reply.token({text!r}); reply.drain(10, level='synced')")
    time.sleep(1.5)
    daemon.kill()
    spoil(batches(daemon)[2])
    daemon.start()
    agent.do("reply.token('five'); reply.drain(10, level='synced')")
    assert daemon.status()["lost_acked"] == 1
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps] == [(3, 3, "corrupt")]
    daemon.logged("stream 1: lost to damage of synced bytes: seqs 3 to 3")
    daemon.logged("stream r, seqs 3 to 3")
    daemon.restart()  # said once
    agent.do("reply.token('six'); reply.drain(10, level='synced')")
    assert daemon.status()["lost_acked"] == 0


@pytest.mark.parametrize("released", ["before", "since"])
@pytest.mark.parametrize("in_turn", [False, True])
def test_a_reply_whose_end_was_lost_can_be_released(
    make_daemon: MakeDaemon, make_agent: MakeAgent, released: str, *, in_turn: bool
) -> None:
    """P5: who ended it knows that it has ended."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("session = client.session('s')")
    agent.do("turn = session.submit('ask', message_id='m')" if in_turn else "turn = client")
    agent.do("reply = turn.reply()" if in_turn else "reply = client.reply('s', stream_id='r')")
    agent.do("reply.token('said'); reply.drain(10, level='synced')")
    agent.do("reply.__exit__(None, None, None); reply.drain(10, level='synced')")
    time.sleep(1.5)
    daemon.kill()
    spoil(batches(daemon)[-1])
    if released == "before":
        agent.do("reply.release()")
    daemon.start()
    if released == "since":
        until(lambda: daemon.status()["streams_live"] == 1, "its agent's return")
        agent.do("reply.release()")
    agent.do("reply.drain(10, level='synced')")
    until(lambda: daemon.status()["streams_live"] == 0, "a release that is taken")
    agent.kill()
    daemon.restart()
    assert daemon.status()["streams_live"] == daemon.status()["partials"] == 0
    if in_turn:
        messages = daemon.reader.session("s").messages()
        assert messages is not None
        assert [one["content"] for one in messages] == ["ask", "said"]


def test_a_lock_with_a_flipped_digit_hides_no_log(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "still here")
    lock = daemon.data / "LOCK"
    raw = lock.read_text()
    at = raw.index("log ") + 7
    lock.write_text(raw[:at] + ("0" if raw[at] != "0" else "1") + raw[at + 1 :])
    daemon.start()
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert reply.text == "still here"


def test_a_lost_lock_and_a_damaged_header_hide_no_log(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """The log's uuid stands in the header, and the batches prove it."""
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "still here")
    (daemon.data / "LOCK").unlink()
    (segment,) = daemon.segments()
    content = bytearray(segment.read_bytes())
    content[48] ^= 1
    segment.write_bytes(content)
    recovered = daemon.cli("recover", "s", "--data", str(daemon.data), "--text")
    assert recovered.stdout == b"still here\n"
    daemon.start()
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert reply.text == "still here"


def test_a_segment_that_nothing_can_read_is_kept_and_proves_nothing(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """LOCK is lost, and of the header so much that nothing says which log it is of."""
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "still here")
    (daemon.data / "LOCK").unlink()
    (segment,) = daemon.segments()
    segment.write_bytes(content := b"?" * 64 + segment.read_bytes()[64:])
    daemon.start()
    until(lambda: not segment.exists(), "the damaged segment's end")
    (kept,) = (daemon.data / "quarantine").iterdir()
    assert kept.read_bytes() == content
    with pytest.raises(Unavailable, match="quarantine"):
        daemon.reader.recover("s")


def test_with_lock_and_all_segments_gone_nobody_says_clean(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """That a daemon has been here its reserve says, if nothing else does."""
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "was here")
    (daemon.data / "LOCK").unlink()
    for segment in daemon.segments():
        segment.unlink()
    looked = daemon.cli("fsck", str(daemon.data))
    assert (looked.returncode, b"LOCK, which would tell of one, is lost" in looked.stdout) == (
        2,
        True,
    )
    assert daemon.cli("recover", "s", "--data", str(daemon.data)).returncode == 1
    daemon.start()
    with pytest.raises(Unavailable):
        daemon.reader.recover("s")


def test_names_that_are_no_segments_keep_no_daemon_from_starting(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    said(daemon, make_agent(daemon), "still here")
    (daemon.data / "wal" / f"{900:020d}.wal").mkdir()
    os.mkfifo(daemon.data / "wal" / f"{901:020d}.wal")
    (daemon.data / "wal" / f"{2**64 - 1:020d}.wal").write_bytes(bytes(100))
    daemon.start()
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert reply.text == "still here"


def test_a_second_connection_of_a_flooding_producer_stalls_nobody(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    producer = os.urandom(16)
    hello = encode(wire.Hello(1, "agent", producer))
    with socket.socket(socket.AF_UNIX) as flood, socket.socket(socket.AF_UNIX) as second:
        flood.connect(daemon.socket_path)
        flood.sendall(hello + encode(wire.Start(1, 0, "flood", "s")))
        flood.settimeout(0.05)
        prefix, seq = event_frames.text_prefix(event_frames.TOKEN, 1), 1
        deadline = time.monotonic() + 4
        connected = False
        while time.monotonic() < deadline:
            burst = b"".join(
                event_frames.plain_text(prefix, seq + k, b"x" * 900) for k in range(200)
            )
            try:
                flood.sendall(burst)
            except TimeoutError:
                break  # the daemon does not read: its queue is full, which is a bound too
            seq += 200
            if not connected:
                second.connect(daemon.socket_path)
                second.sendall(hello + encode(wire.Start(2, 0, "second", "s")))
                connected = True
            assert daemon.status()["queue_bytes"] < 80 * 2**20
        assert connected


def test_one_damaged_partial_hides_no_other(make_daemon: MakeDaemon, make_agent: MakeAgent) -> None:
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("a, b = (client.reply(s, stream_id=s) for s in 'ab')")
    agent.do("[r.token('kept ') for r in (a, b)]; a.drain(10)")
    agent.kill()
    until(lambda: len(list((daemon.data / "partials").rglob("a"))) > 1, "kept")
    until(lambda: not daemon.wal_holds(b"kept "), "a log that has let go of them")
    (file,) = [path for path in (daemon.data / "partials").rglob("a") if path.is_file()]
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert [reply.stream_id for reply in daemon.reader.recover_all()] == ["b"]
    assert [reply.stream_id for reply in daemon.reader.orphans()] == ["b"]
    with pytest.raises(Unavailable):
        daemon.reader.recover("a")


def test_damage_that_a_running_daemon_meets_is_counted_once(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """K4, P9: by a query, again by a query, and by what keeps the reply once its agent is gone."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    for text in ("one ", "two ", "three ", "four "):
        agent.do(f"reply.token({text!r}); reply.drain(10, level='synced')")
    agent.do("[reply.token('five ') for _ in range(3)]; reply.drain(10, level='synced')")
    spoil(batches(daemon)[4])
    for _ in range(2):
        assert daemon.status()["lost_acked"] in (0, 3)
        reply = daemon.reader.recover("s")
        assert reply is not None
        assert reply.text == "one two three four "
        assert [gap.verdict for gap in reply.gaps] == ["corrupt"]
        assert daemon.status()["lost_acked"] == 3
    agent.do("reply.token('six'); reply.drain(10, level='synced')")
    agent.kill()
    until(lambda: daemon.status()["partials"] == 1, "kept")
    assert daemon.orphan("r").gaps[0].last_seq == 7
    assert daemon.metrics()["walld_lost_acked_total"] == 3
    daemon.logged("lost_acked: uid")
    assert daemon.logged("stream r, seqs 5 to 7").count("stream r, seqs 5 to 7") == 1


def test_damage_that_is_met_when_a_record_is_carried_is_counted(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """Nobody asked for the reply: it was the reclaimer that read it."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    for number in range(5):
        agent.do(f"reply.token('{number} '); reply.drain(10, level='synced')")
    agent.do("gone = client.reply('t'); gone.token('x' * 9000); gone.drain(10, level='synced')")
    before = daemon.segments()
    spoil(batches(daemon)[2])
    agent.do("gone.end(); gone.release()")
    until(lambda: not set(before) & set(daemon.segments()), "carried")
    assert daemon.status()["lost_acked"] == 1
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps] == [(3, 3, "corrupt")]
    assert daemon.status()["lost_acked"] == 1
