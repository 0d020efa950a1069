"""A signal handler or a finalizer that speaks while its own thread is in the middle of speaking."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment

AGENT = """
import gc, logging, os, signal, sys, threading, time
import walld_client
client = walld_client.connect(sys.argv[1])
reply = client.reply('s', stream_id='r')
"""


def run(daemon: DaemonProcess, body: str) -> subprocess.Popen[str]:
    code = AGENT + textwrap.dedent(body)
    command = [sys.executable, "-c", code, daemon.socket_path]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("round_no", range(5))
def test_a_handler_that_cancels_never_waits_for_itself(
    make_daemon: Callable[..., DaemonProcess], round_no: int
) -> None:
    daemon = make_daemon().start()
    agent = run(
        daemon,
        """
        def stop(*_):
            reply.cancel('sigterm')
            raise SystemExit(7)
        signal.signal(signal.SIGTERM, stop)
        print('up', flush=True)
        while True:
            reply.token('x')
        """,
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == "up\n"
    agent.send_signal(signal.SIGTERM)
    try:
        assert agent.wait(PATIENCE_SECONDS) == 7
    finally:
        agent.kill()
        agent.communicate()
    reply = daemon.orphan("r")
    assert (reply.status, reply.lost_reason) == ("cancelled", "sigterm")
    assert reply.text == "x" * (reply.last_seq - 1)


def test_finalizers_that_speak_in_the_middle_of_a_send_are_heard_behind_it(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon = make_daemon().start()
    agent = run(
        daemon,
        """
        gc.set_threshold(5, 2, 2)
        said = 0
        class Wrapper:
            def __init__(self): self.me = self
            def __del__(self):
                global said
                said += 1
                reply.token('F')
        for _ in range(3000):
            Wrapper()
            reply.token('x')
            reply.tool('t', {'b': [1]})
        # One collection runs at a time, and the I/O thread's thread may be in the middle of it.
        deadline = time.monotonic() + 60
        while said < 3000 and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
        reply.end()
        print(said, flush=True)
        client.close()
        """,
    )
    printed, _ = agent.communicate(timeout=PATIENCE_SECONDS)
    assert agent.returncode == 0
    reader = daemon.reader
    assert int(printed) == 3000
    assert reader.recover(stream_id="r") is None, "ended and released"


def test_a_log_line_of_walld_may_be_streamed_into_a_reply(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """A logging handler that speaks, in the child of a fork, where walld logs under its lock."""
    daemon = make_daemon().start()
    agent = run(
        daemon,
        """
        class Into(logging.Handler):
            def emit(self, record): reply.token(record.getMessage())
        logging.getLogger('walld').addHandler(Into())
        reply.token('parent')
        pid = os.fork()
        if pid == 0:
            reply.token('child')
            os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        reply.end()
        client.close()
        """,
    )
    printed, _ = agent.communicate(timeout=PATIENCE_SECONDS)
    assert printed == "5\n"
    assert agent.returncode == 0


def test_an_interrupt_at_any_step_costs_at_most_the_event_it_met(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """CPython looks for signals where a function is entered: at each of the client's one raises.

    What a call gave a seq for arrives, once; the program goes on, and nothing raises again.
    """
    daemon = make_daemon().start()
    agent = run(
        daemon,
        """
        from importlib import import_module
        names = 'ack_handler backlog connection link lock registry ring stream'.split()
        modules = [import_module('walld_client.link.' + name) for name in names]
        modules.append(import_module('walld_client.reply.send'))
        codes = [
            made.__code__
            for module in modules
            for kind in vars(module).values()
            if getattr(kind, '__module__', '') == module.__name__
            for made in (vars(kind).values() if isinstance(kind, type) else [kind])
            if hasattr(made, '__code__')
        ]
        reply.drain(30.0, 'synced')  # what is acknowledged is trimmed, too
        said, met = set(), set()

        def interrupt(code, at):
            left = at
            def trace(frame, event, _):
                nonlocal left
                if event == 'call' and frame.f_code is code:
                    left -= 1
                    if not left:
                        sys.settrace(None)
                        met.add(code.co_qualname)
                        raise KeyboardInterrupt
            return trace

        for code in codes:
            for at in (1, 2, 9):
                sys.settrace(interrupt(code, at))
                for turn in range(130):
                    try:
                        said.add(reply.token('x') if turn % 3 else reply.reasoning('why'))
                        if turn % 40 == 39:
                            reply.drain(0.01)
                    except KeyboardInterrupt:
                        pass
                sys.settrace(None)
        said.add(reply.step())
        drained = reply.drain(30.0, 'synced')
        ring = client._link.backlog
        ring.count()
        held = [*ring.endings, *ring.sent, *ring.outgoing, *ring.kept, *ring.waiting]
        counted = ring.frames_bytes == sum(map(len, held)) + 48 * len(held)
        print(len(met), drained, counted, client.stats().backlog, *sorted(said - {0}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    printed, _ = agent.communicate(timeout=4 * PATIENCE_SECONDS)
    met, drained, counted, backlog, *seqs = printed.split()
    assert int(met) > 15
    assert (drained, counted, backlog) == ("True", "True", "0")
    found = daemon.orphan("r")
    missing = {seq for gap in found.gaps for seq in range(gap.first_seq, gap.last_seq + 1)}
    assert missing.isdisjoint(map(int, seqs))
    assert found.last_seq == int(seqs[-1])
    assert found.events + len(missing) == found.last_seq
