"""append(wait=False) of a program that ends: what the kernel has is in the session (P1).

However it ends: at the end of its text, by an exception, without any last words, killed. Whoever
has waited for it and asks at once sees all of it, in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import walld_client
from colours import connect
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment, until

SYNC = """
import os, signal, sys, time
import walld_client
client = walld_client.connect(sys.argv[1])
session = client.session(sys.argv[2])
for n in range(int(sys.argv[3])):
    session.append('n', {'n': n}, wait=False)
"""
AIO = """
import asyncio, os, sys
import walld_client.aio
async def main():
    session = walld_client.aio.connect(sys.argv[1]).session(sys.argv[2])
    for n in range(int(sys.argv[3])):
        await session.append('n', {'n': n}, wait=False)
asyncio.run(main())
"""
KERNEL_HAS_IT = """
import time, walld_client.session.append_queue
while any(one.unsent for one in list(walld_client.session.append_queue._connections)):
    time.sleep(0.001)
"""
"""What is posted waits in memory until a daemon that has much to do has let this process in."""
ENDS = {
    "end": "",
    "exception": "raise SystemExit(0)",
    "at once": KERNEL_HAS_IT + "os._exit(0)",
    "killed": KERNEL_HAS_IT + "os.kill(os.getpid(), 9)",
}


def posted_by(daemon: DaemonProcess, text: str, session_id: str, count: int) -> str:
    """Run a program to its end. What it said on stderr."""
    command = [sys.executable, "-c", text, daemon.socket_path, session_id, str(count)]
    ran = subprocess.run(
        command, env=environment(), stderr=subprocess.PIPE, check=False, text=True, timeout=60
    )
    return ran.stderr


def numbers(daemon: DaemonProcess, session_id: str) -> list[int]:
    found = daemon.reader.session(session_id).events() or []
    return [event["payload"]["n"] for event in found if event["type"] == "n"]


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
@pytest.mark.parametrize("text", [SYNC, AIO], ids=["sync", "aio"])
def test_what_a_program_that_ended_had_posted_is_there(
    daemon: DaemonProcess, text: str, end: str
) -> None:
    for count in (1, 60, 500):
        assert posted_by(daemon, text + end, f"s{count}", count) == ""
        assert numbers(daemon, f"s{count}") == list(range(count))


def test_on_each_event_loop(daemon_on_each: DaemonProcess) -> None:
    for count in (2, 300):
        assert posted_by(daemon_on_each, SYNC + ENDS["killed"], f"s{count}", count) == ""
        assert numbers(daemon_on_each, f"s{count}") == list(range(count))


def test_more_than_the_kernel_holds_is_handed_over_at_the_end(daemon: DaemonProcess) -> None:
    text = SYNC.replace("'n': n}", "'n': n, 'text': 'x' * 4000}")
    assert posted_by(daemon, text, "s", 900) == ""
    assert numbers(daemon, "s") == list(range(900))


def test_a_daemon_that_was_frozen_does_what_the_dead_left(daemon: DaemonProcess) -> None:
    """More answers than anybody reads, too: whoever they are for is gone."""
    begin, _, posts = SYNC.partition("for n")
    text = f"{begin}session.state()\nsession.append('m', wait=False)\nsession.state()\n"
    text += f"print(flush=True)\ninput()\nfor n{posts}os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", text, daemon.socket_path, "s", "400"]
    agent = subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdout.readline()
    daemon.freeze()
    agent.stdin.write(b"\n")
    agent.stdin.close()
    assert agent.wait() == -signal.SIGKILL
    agent.stdout.close()
    daemon.thaw()
    assert numbers(daemon, "s") == list(range(400))


def test_nothing_comes_back_behind_a_delete(daemon: DaemonProcess) -> None:
    for count in (1, 30, 300, 800):
        posted_by(daemon, SYNC + ENDS["killed"], "s", count)
        daemon.reader.delete("s")
        assert numbers(daemon, "s") == []
    daemon.restart()
    assert numbers(daemon, "s") == []


def test_a_daemon_that_ends_does_it_first(daemon: DaemonProcess) -> None:
    for count in (3, 800):
        posted_by(daemon, SYNC + ENDS["killed"], f"s{count}", count)
        assert daemon.terminate() == 0
        daemon.start()
        assert numbers(daemon, f"s{count}") == list(range(count))


def test_a_turn_is_interrupted_behind_what_its_process_posted(daemon: DaemonProcess) -> None:
    text = SYNC.replace("for n", "turn = session.submit('hi')\nturn.worker_started()\nfor n")
    for count in (1, 700):
        posted_by(daemon, text + ENDS["killed"], f"s{count}", count)
        events = daemon.reader.session(f"s{count}").events() or []
        assert [event["type"] for event in events[2:]] == ["n"] * count + ["turn_interrupted"]


def test_it_arrives_while_its_process_says_nothing_more(daemon: DaemonProcess) -> None:
    client = walld_client.connect(daemon.socket_path)
    session = client.session("s")
    for n in range(2000):
        session.append("n", {"n": n}, wait=False)
    until(lambda: len(numbers(daemon, "s")) == 2000, "what was posted")
    daemon.kill()
    for n in range(2000, 2010):
        session.append("n", {"n": n}, wait=False)
    daemon.start()
    until(lambda: len(numbers(daemon, "s")) == 2010, "what was posted while it was away")
    assert numbers(daemon, "s") == list(range(2010))
    client.close()


def test_killed_in_full_flight_no_daemon_adds_it_twice(daemon: DaemonProcess) -> None:
    client = walld_client.connect(daemon.socket_path)
    session = client.session("s")
    for n in range(1200):
        session.append("n", {"n": n}, wait=False)
        if n % 300 == 150:
            daemon.restart()
    until(lambda: len(numbers(daemon, "s")) >= 1200, "all of it")
    assert numbers(daemon, "s") == list(range(1200))
    client.close()


def test_a_fork_sends_nothing_of_its_parent(daemon: DaemonProcess) -> None:
    text = """
import os, sys
import walld_client
client = walld_client.connect(sys.argv[1])
session = client.session(sys.argv[2])
session.append('n', {'n': 0}, wait=False)
session.state()
print(flush=True)
input()
for n in range(1, 40):
    session.append('n', {'n': n}, wait=False)
if not (pid := os.fork()):
    session.append('n', {'n': 1000}, wait=False)
    raise SystemExit(0 if len(client._append_queue) == 1 else 3)
assert os.waitpid(pid, 0)[1] == 0
print(flush=True)
input()
"""
    command = [sys.executable, "-c", text, daemon.socket_path, "s"]
    agent = subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdout.readline()
    daemon.kill()
    agent.stdin.write(b"\n")
    agent.stdin.flush()
    agent.stdout.readline()
    daemon.start()
    until(lambda: len(numbers(daemon, "s")) >= 40, "what the parent posted")
    agent.stdin.write(b"\n")
    agent.stdin.close()
    assert agent.wait() == 0
    agent.stdout.close()
    assert numbers(daemon, "s") == list(range(40))


def test_what_nobody_takes_is_said_at_the_end(daemon: DaemonProcess) -> None:
    """Within a bound: a daemon that is away keeps no program from ending."""
    begun = SYNC.replace("for n", "session.append('m', wait=False)\nsession.state()\nKILL\nfor n")
    assert daemon.process is not None
    text = begun.replace("KILL", f"os.kill({daemon.process.pid}, 9)\ntime.sleep(0.2)")
    at = time.monotonic()
    said = posted_by(daemon, text, "s", 12)
    assert "12 entries that were posted never reached walld" in said
    assert time.monotonic() - at < 30
    daemon.process.wait()


@pytest.fixture
def kept_alive(make_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    return make_daemon().start()


def test_a_client_that_is_dropped_keeps_no_descriptor(kept_alive: DaemonProcess) -> None:
    text = """
import gc, json, os, sys, time
import walld_client
for n in range(30):
    client = walld_client.connect(sys.argv[1])
    client.session(sys.argv[2]).append('n', {'n': n}, wait=False)
    client.session(sys.argv[2]).state()
    del client
gc.collect()
for _ in range(500):
    count = len(os.listdir('/proc/self/fd'))
    if count < 20:
        break
    time.sleep(0.01)
print(json.dumps(count))
"""
    command = [sys.executable, "-c", text, kept_alive.socket_path, "s"]
    told = subprocess.run(command, env=environment(), capture_output=True, check=True, timeout=60)
    assert json.loads(told.stdout) < 20
    assert numbers(kept_alive, "s") == list(range(30))
    assert os.path.exists(kept_alive.socket_path)


@pytest.mark.parametrize("text", [SYNC, AIO], ids=["sync", "aio"])
def test_sessions_whose_files_fail_hold_up_no_other(daemon: DaemonProcess, text: str) -> None:
    """Of one program, which posts to them and to one that is well, in turn."""
    names = [f"bad{n}" for n in range(8)]
    for name in (*names, "good"):
        daemon.reader.session(name).append("begun")
    assert daemon.terminate() == 0
    for path in (daemon.data / "sessions").rglob("events.jsonl"):
        if path.parent.name in names:
            path.rename(path.with_suffix(".aside"))
            path.mkdir()
    daemon.start()
    wait, each = ("await ", "    ") if text is AIO else ("", "")
    said = f"{each}good = client.session('good')\n"
    for n, name in enumerate(names):
        said += f"{each}{wait}client.session({name!r}).append('n', wait=False)\n"
        said += f"{each}{wait}good.append('n', {{'n': {n}}}, wait=False)\n"
    said += f"{each}assert len({wait}good.events()) == 9\n"
    said += f"{each}assert ({wait}good.append('n', {{'n': 8}})).seq == 10\n"
    begin = text.partition("    session =" if text is AIO else "session =")[0]
    begin += f"{each}client = walld_client{'.aio' if text is AIO else ''}.connect(sys.argv[1])\n"
    end = "asyncio.run(main())\n" if text is AIO else ""
    told = posted_by(daemon, begin + said + end, "s", 0)
    assert "Error" not in told, told
    assert numbers(daemon, "good") == list(range(9))


def test_a_reply_that_began_while_walld_was_away_finds_its_turn(
    daemon: DaemonProcess, colour: str
) -> None:
    """Its beginning goes to the log once walld is back, also where its program asks nothing."""
    client = connect(colour, daemon.socket_path, timeout=0.5)
    turn = client.session("s").submit("what is it?", timeout=PATIENCE_SECONDS)
    daemon.kill()
    reply = turn.reply()
    reply.token("it is this")
    daemon.start()
    session = daemon.reader.session("s")
    until(lambda: len(session.events()) == 2, "the beginning of the reply")
    found = session.turn(stream_id=reply.stream_id)
    assert (found.turn_id, found.state) == (turn.turn_id, "assistant_started")
    reply.end()
    client.let_go()


def test_a_beginning_that_a_frozen_walld_took_late_is_in_the_log_once(
    daemon: DaemonProcess,
) -> None:
    client = walld_client.connect(daemon.socket_path, timeout=0.5)
    turn = client.session("s").submit("what is it?", timeout=PATIENCE_SECONDS)
    daemon.freeze()
    reply = turn.reply()
    daemon.thaw()
    client._append_queue.settle(PATIENCE_SECONDS)
    session = daemon.reader.session("s")
    types = [event["type"] for event in session.events()]
    assert types == ["turn_submitted", "turn_assistant_started"]
    assert session.turn(stream_id=reply.stream_id).turn_id == turn.turn_id
    reply.cancel()
    client.close()
