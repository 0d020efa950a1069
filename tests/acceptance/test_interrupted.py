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
        # One collection runs at a time, and the keeper's thread may be in the middle of it.
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
