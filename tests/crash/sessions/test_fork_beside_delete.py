"""A fork beside the delete of its source, the daemon killed anywhere within: each is done or not.

What must be true: a fork is there with all its lines and artifacts, or nothing of it is; a session
whose delete was answered has left no byte but in its forks, one whose delete was not is whole or
gone; what may have run stays doubted in the fork.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess, until
from walld_client.errors import Refused, Unavailable

LOST = "unavailable"
CALLS = {
    "linkat": (3,),
    "renameat": (8, 10),
    "fsync": (16, 18, 20, 22),
    "unlinkat": (15, 17, 22, 24),
}
"""Of the thread that does them, from the last artifact to behind the delete."""


class Source:
    """A session that will be forked and deleted: lines in its file and in the log, artifacts, a
    call that may have run.
    """

    def __init__(self, daemon: DaemonProcess, name: str, artifacts: int = 4) -> None:
        self.daemon, self.name, self.fork_name = daemon, name, f"fork of {name}"
        self.needle = f"needle of {name}; "
        self.failed: list[str] = []
        with self.client(30) as client:
            session = client.session(name)
            for at in range(artifacts):
                session.artifact(f"{self.needle}{at}".encode() * 300, "text/plain")
            turn = session.submit(f"{self.needle}do", message_id="m")
            effect, policy = "external-write", "never-rerun"
            turn.intent("send", {}, side_effect=effect, resume_policy=policy, call_id="c")
            turn.tool_started("c")
            for count in (70, 3):
                told = {"type": "app.note", "payload": {"text": self.needle * 3}}
                session.append_many([told] * count)
            self.ids = [one["id"] for one in session.events()]

    @contextmanager
    def client(self, timeout: float) -> Iterator[walld_client.Client]:
        client = walld_client.connect(self.daemon.socket_path, timeout=timeout)
        try:
            yield client
        finally:
            client.close()

    def fork(self) -> str:
        """What became of it: "done", "unavailable", or what it was refused as."""
        with self.client(3) as client:
            return told(lambda: client.session(self.name).fork(None, self.fork_name))

    def delete(self) -> str:
        with self.client(3) as client:
            return told(lambda: client.delete(self.name))

    def write(self, what: str, over: threading.Event) -> None:
        """Until it is over, to whatever session has the name."""
        with self.client(10) as client:
            session = client.session(self.name)
            while not over.is_set():
                if what == "append":
                    session.append_many([{"type": "app.note", "payload": {}}] * 9)
                elif what == "compact":
                    with suppress(Refused):  # its first entry went with the session
                        session.compact("so far", self.ids[-1])
                elif (session.project("audit") or {}).get("artifacts_missing"):
                    self.failed.append("an artifact is missing")

    def judge(self, forked: str, deleted: str) -> None:
        """After whatever happened, the daemon running."""
        reader = self.daemon.reader
        session, fork = reader.session(self.name), reader.session(self.fork_name)
        is_there, was_forked = check_whole(session, self.ids), check_whole(fork, self.ids)
        assert is_there or deleted in ("done", LOST)
        assert not is_there or deleted != "done"
        assert was_forked if forked == "done" else forked in (LOST, "unknown_session")
        assert not was_forked or forked in ("done", LOST)
        if not was_forked:
            self.until_gone(f"fork of {self.name}")
        reader.delete(self.name)
        self.until_gone(self.name)
        assert session.messages() is None
        if was_forked:
            assert check_whole(fork, self.ids)
            assert fork.append("app.note", {}).seq > len(self.ids)
        self.erase()

    def erase(self) -> None:
        """Both sessions, to the last byte."""
        for name in (self.name, self.fork_name):
            self.daemon.reader.delete(name)
        until(lambda: not self.daemon.holding([self.needle.encode()]), "a directory without it")

    def until_gone(self, session_id: str) -> None:
        """No file of it: a start sweeps up behind what it serves."""
        folder = self.daemon.data / "sessions" / str(os.geteuid())
        name = walld_client.paths.path_name(session_id)
        until(lambda: not list((folder / name).rglob("*")), f"no file of {session_id}")
        until(lambda: not list(folder.parent.glob(f".*+{name}.*")), f"no note of {session_id}")


def told(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except Refused as error:
        return error.code
    except Unavailable:
        return LOST
    return "done"


def check_whole(session: Any, ids: list[str]) -> bool:
    """False: it was never written. All of it is there, and its gate knows what may have run."""
    events = session.events()
    if session.messages() is None:
        assert events == []
        return False
    assert [one["id"] for one in events if one["id"] in set(ids)] == ids
    audit, gate = session.project("audit"), session.resume_check()
    assert (audit["artifacts_missing"], audit["chain_breaks"]) == ([], [])
    assert gate["status"] == "blocked"
    assert [(one["call_id"], one["outcome"]) for one in gate["tools"]] == [("c", "unknown")]
    for one in events:
        if one["type"] == "artifact":
            assert session.read_artifact(one["payload"]["sha256"])
    return True


def both(source: Source, random: Random, meanwhile: Callable[[], None]) -> tuple[str, str]:
    """A fork and a delete, begun at about the same time; what became of each."""
    became: dict[str, str] = {}

    def do(what: str, pause: float) -> None:
        time.sleep(pause)
        became[what] = source.fork() if what == "fork" else source.delete()

    asking = [
        threading.Thread(target=do, args=("fork", random.random() * 0.005)),
        threading.Thread(target=do, args=("delete", random.random() * 0.015)),
    ]
    for one in asking:
        one.start()
    meanwhile()
    for one in asking:
        one.join()
    return became["fork"], became["delete"]


def test_a_fork_beside_the_delete_of_its_source(daemon: DaemonProcess) -> None:
    random, became = Random("beside"), set()
    for at in range(14):
        source = Source(daemon, f"s{at}")
        forked, deleted = both(source, random, lambda: None)
        assert deleted == "done"
        source.judge(forked, deleted)
        became.add(forked)
    assert became <= {"done", "unknown_session"}


def test_killed_at_any_moment_each_is_done_or_is_not(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon, random = make_daemon("--reclaim-seconds", "1").start(), Random("killed")
    for at in range(8):
        source = Source(daemon, f"s{at}", artifacts=random.choice((0, 4, 20)))

        def kill() -> None:
            time.sleep(random.random() * 0.03)
            daemon.kill()

        became = both(source, random, kill)
        daemon.start()
        source.judge(*became)
    assert "corrupt" not in daemon.log_text()


def test_beside_appends_a_compaction_and_reads_of_all_of_it(daemon: DaemonProcess) -> None:
    """Whatever is written to the source meanwhile: a fork is one moment of it."""
    for at in range(6):
        source = Source(daemon, f"s{at}")
        over = threading.Event()
        writers = [
            threading.Thread(target=source.write, args=(what, over))
            for what in ("append", "compact", "read")
        ]
        for writer in writers:
            writer.start()
        forked, deleted = both(source, Random(at), lambda: None)
        over.set()
        for writer in writers:
            writer.join()
        assert source.failed == []
        assert deleted == "done"
        fork = daemon.reader.session(source.fork_name)
        if forked == "done":
            # What was appended behind the delete is a new session, which may be what was forked:
            # of the old one it has all or nothing.
            copied = fork.events()
            is_of_old = any(one["id"] in set(source.ids) for one in copied)
            assert check_whole(fork, source.ids) if is_of_old else copied
        else:
            assert forked == "unknown_session"
            assert fork.messages() is None
        source.erase()


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="needs strace (Debian: apt-get install strace)"
)
@pytest.mark.parametrize(
    ("call", "nth"), [(call, nth) for call, times in CALLS.items() for nth in times]
)
def test_killed_at_each_call(
    make_daemon: Callable[..., DaemonProcess], call: str, nth: int
) -> None:
    daemon = make_daemon("--reclaim-seconds", "0")
    inject = f"inject={call}:signal=KILL:when={nth}"
    daemon.wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    daemon.start()
    source = Source(daemon, "s")
    forked, deleted = source.fork(), source.delete()
    daemon.kill()
    daemon.wrapper = []
    assert daemon.cli("fsck", str(daemon.data)).returncode < 2, "nothing of it is damage"
    daemon.start()
    source.judge(forked, deleted)
