"""Ended and released: no byte of it is left anywhere below the data directory (P5).

Every file is searched, whatever it is called: segments, partials, quarantine, what a start renamed.
And each test sees the bytes there before it sees them gone.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.process import Obedient
from agents.words import said
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until

from walld import limits
from walld.wal.layout import SEGMENT_HEADER_BYTES

NEEDLE = b"erased"
SAY = """
reply = client.reply(
    'erased-session', stream_id='erased', turn_id='erased-turn', parent='erased-parent',
    auto_release=False, note='erased-meta',
)
reply.token('erased-text'); reply.reasoning('erased-reasoning'); reply.token('x', info='erased')
reply.tool('erased-tool', {'a': 'erased-argument'}, call_id='erased-call')
reply.tool_result({'b': 'erased-result'}, call_id='erased-call')
reply.tool_arguments('{"erased-delta', call_id='erased-open')
reply.event('erased-kind', {'c': 'erased-payload'}); reply.step(d='erased-step')
reply.retry('erased-reason'); reply.token('erased-text again'); reply.finish('erased-finish')
assert reply.drain(20, 'synced')
"""
LEAVE = {
    "end": "reply.end('erased-too'); reply.release()",
    "cancel": "reply.cancel('erased-why'); reply.release()",
    "error": "reply.error('erased-message', kind='erased', detail='erased'); reply.release()",
    "release by id": "reply.end(); client.release('erased')",
    "release later": "reply.end(); reply.drain(20, 'synced'); reply.release()",
}

assert limits.RECLAIM_SECONDS_DEFAULT >= PATIENCE_SECONDS, "nothing here waits for the clock"


def gone(daemon: DaemonProcess, needle: bytes = NEEDLE) -> None:
    until(lambda: daemon.holding([needle]) == [], f"{needle!r} gone; {daemon.holding([needle])}")


@pytest.mark.parametrize("leave", LEAVE)
def test_nothing_is_left_at_the_next_flush(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], leave: str
) -> None:
    agent = make_agent(daemon)
    agent.do(SAY)
    assert daemon.holding([NEEDLE])
    agent.do(LEAVE[leave])
    gone(daemon)
    for path in daemon.segments():
        assert path.stat().st_size == SEGMENT_HEADER_BYTES
    assert daemon.reader.recover("erased-session") is None
    assert daemon.reader.has_partial("erased-session") is False
    assert daemon.offline() == []
    daemon.restart()
    assert daemon.reader.recover_all() == []
    assert daemon.holding([NEEDLE]) == []


def test_nothing_is_left_on_any_backend_and_the_agent_goes_on(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    daemon = daemon_on_each
    agent = make_agent(daemon)
    for turn in range(5):
        agent.do(
            """
            with client.reply('s') as reply:
                for number in range(2000):
                    reply.token(f'erased {number} ')
                assert reply.drain(20)
                reply.end()
            """
        )
        if turn % 2:
            gone(daemon)
    gone(daemon)
    assert agent.do("client.stats().streams, client.stats().refused")[1] == 0


def test_with_another_stream_alive_it_is_gone_within_reclaim_seconds(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient], backend: str
) -> None:
    daemon = make_daemon("--reclaim-seconds", "1", backend=backend).start()
    agent = make_agent(daemon)
    agent.do("kept = client.reply('kept', stream_id='kept')")
    agent.do("[kept.token(token(0, seq)) for seq in range(1, 1001)]")
    agent.do(SAY)
    assert daemon.holding([NEEDLE])
    agent.do(LEAVE["end"])
    released_at = time.monotonic()
    gone(daemon)
    # Of the second that was asked for, or of the default? What it is to the second: virtual_time/.
    assert time.monotonic() - released_at < limits.RECLAIM_SECONDS_DEFAULT / 2
    until(lambda: daemon.status()["reclaim_lag_seconds"] == 0, "no lag")
    agent.do("[kept.token(token(0, seq)) for seq in range(1001, 1011)]; kept.drain(20)")
    kept = daemon.reader.recover("kept")
    assert kept is not None
    assert (kept.text, kept.last_seq, kept.gaps) == (said(0, 1010), 1010, [])
    daemon.restart()
    agent.kill()
    assert daemon.orphan("kept").text == said(0, 1010)
    assert daemon.holding([NEEDLE]) == []


def test_what_is_not_due_stays_on_disk_and_is_nobodys(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """With 30 s to go and another stream alive nothing hurries: the test above can fail."""
    agent = make_agent(daemon)
    agent.do("kept = client.reply('kept'); kept.token('x')")
    agent.do(SAY + LEAVE["end"])
    assert agent.do("kept.drain(20, 'synced')")
    time.sleep(1.0)
    assert daemon.holding([NEEDLE])
    assert daemon.status()["reclaim_lag_seconds"] == 0
    assert daemon.reader.recover("erased-session") is None
    assert daemon.reader.has_partial("erased-session") is False


def test_the_daemon_killed_between_release_and_reclaim(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """The tombstone is what the next daemon goes by."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    agent = make_agent(daemon)
    agent.do("kept = client.reply('kept', stream_id='kept'); kept.token('kept')")
    agent.do(SAY + LEAVE["end"] + "\nassert kept.drain(20, 'synced')")
    assert daemon.holding([NEEDLE])
    daemon.restart()
    assert daemon.reader.recover("erased-session") is None
    gone(daemon)
    kept = daemon.reader.recover("kept")
    assert kept is not None
    assert (kept.text, kept.status) == ("kept", "live")


def test_resolved_is_gone_like_released(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(SAY)
    agent.kill()
    daemon.orphan("erased")
    until(daemon.partials, "the partial")
    assert daemon.holding([NEEDLE])
    assert daemon.reader.resolve("erased") is True
    gone(daemon)
    assert daemon.partials() == []


def test_a_quiet_stream_in_an_older_segment_does_not_hold_it(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """Nothing in the oldest segment was ever released; what was stands in the one behind it."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    agent = make_agent(daemon)
    agent.do("kept = client.reply('kept', stream_id='kept'); kept.token('x' * 1000)")
    assert agent.do("kept.drain(20, 'synced')")
    daemon.restart()
    assert len(daemon.segments()) == 2
    agent.do(SAY + LEAVE["end"])
    assert daemon.holding([NEEDLE])
    gone(daemon)
    kept = daemon.reader.recover("kept")
    assert kept is not None
    assert (kept.text, kept.status) == ("x" * 1000, "live")


def test_a_resolved_partial_is_gone_from_the_log_too(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """Its bytes stand in the partial and still in the segment that another stream holds."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    agent, dying = make_agent(daemon), make_agent(daemon)
    agent.do("kept = client.reply('kept', stream_id='kept'); kept.token('kept')")
    assert agent.do("kept.drain(20, 'synced')")
    dying.do(SAY)
    dying.kill()
    until(daemon.partials, "the partial")
    assert len(daemon.holding([NEEDLE])) == 2, "segment and partial"
    assert daemon.reader.resolve("erased") is True
    gone(daemon)
    assert agent.do("kept.token('!'), kept.drain(20)") == [2, True]
    kept = daemon.reader.recover("kept")
    assert kept is not None
    assert kept.text == "kept!"


# --- never written --------------------------------------------------------------------------------

QUICK = """
reply = client.reply('erased-session', stream_id='erased', note='erased-meta')
[reply.token('erased-text ') for _ in range(500)]
reply.end()
"""


def check_nothing_was_written(daemon: DaemonProcess, agent: Obedient) -> None:
    assert agent.do("reply.drain(20, 'synced'), reply.durable_seq") == [True, 502]
    metrics = daemon.metrics()
    assert metrics['walld_events_received_total{kind="token"}'] == 500
    assert metrics['walld_events_received_total{kind="release"}'] == 1
    assert metrics["walld_wal_writes_total"] == 0
    assert [path.stat().st_size for path in daemon.segments()] == [SEGMENT_HEADER_BYTES]
    assert daemon.holding([NEEDLE]) == []


def test_released_before_its_first_flush_it_is_never_written(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient], backend: str
) -> None:
    daemon = make_daemon("--flush-linger-ms", "3000", backend=backend).start()
    agent = make_agent(daemon)
    agent.do(QUICK)
    check_nothing_was_written(daemon, agent)


def test_released_before_it_was_read_it_is_never_written(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    daemon.freeze()
    agent.do(QUICK)
    daemon.thaw()
    check_nothing_was_written(daemon, agent)


def test_no_system_call_writes_it(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """The kernel's word for it: of two replies only the one that was not released in time."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    daemon = make_daemon("--flush-linger-ms", "3000").start()
    assert daemon.process is not None
    out = daemon.home / "strace.out"
    calls = "trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,mmap"
    command = [strace, "-f", "-qq", "-s", "65536", "-e", calls, "-e", "signal=none"]
    tracer = subprocess.Popen(
        [*command, "-o", str(out), "-p", str(daemon.process.pid)], stderr=subprocess.PIPE
    )
    try:
        # It traces once a request of ours shows up in what it saw.
        until(lambda: tracer.poll() is not None or (daemon.status() and traced(out)), "strace")
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            pytest.skip(f"strace cannot attach here: {tracer.stderr.read().decode().strip()}")
        agent = make_agent(daemon)
        agent.do(QUICK)
        agent.do("kept = client.reply('s'); kept.token('written-down'); kept.drain(20)")
        until(lambda: b"written-down" in out.read_bytes(), "the write of what is kept")
        assert b"erased" not in out.read_bytes()
    finally:
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)
        tracer.communicate()


def traced(out: Path) -> bool:
    return out.exists() and b"sendto(" in out.read_bytes()
