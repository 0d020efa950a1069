"""`walld session archive` and what `import` makes of its file, against a real daemon."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, environment, until
from strace import needs_strace
from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.session.archive import lines_of
from walld.cli.session_client import SessionClient
from walld.foreign import archive_text

Cli = Callable[..., tuple[int, str, str]]
HOSTILE = "chat\x1b]0;owned\x07\u202e/../é"
DAY_MS = 86_400_000
OF_THE_PLACE = ("seq", "chain", "crc", "owner")
"""Of an event: where its line stands, and whose process said it."""


@pytest.fixture
def asking(daemon: DaemonProcess) -> Iterator[SessionClient]:
    with Daemon(daemon.socket_path, 60) as asked:
        yield SessionClient(asked, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "archives"
    made.mkdir()
    return made


def work(session: walld_client.Session) -> None:
    """A bit of everything that a session can hold and be done with."""
    turn = session.submit("do it", message_id="m-1", attachments=[b"attached" * 50])
    turn.worker_started()
    turn.intent("look", {}, side_effect="none", resume_policy="replay-from-event", call_id="c")
    turn.tool_started("c")
    turn.tool_finished("c", "seen")
    with turn.reply() as reply:
        reply.token("an answer")
        reply.end()
    turn.completed()
    first = session.message("user", "first branch")
    session.message("user", "left behind", id="left")
    session.branch(first.id)
    session.message("assistant", "y" * 300_000, id="long")
    session.label("left", "the other way")
    session.undo(1)
    session.message("user", "behind the undo")
    call = {"id": "d", "type": "function", "function": {"name": "rm", "arguments": "{}"}}
    session.message("assistant", "", tool_calls=[call])
    session.settle("d", "ran", result="removed")
    session.append("app.note", {"text": "\ud83d", "deep": [{"a": None}]})


def told(session: walld_client.Session) -> dict[str, Any]:
    """All that a session tells, but for where its lines stand and the words of an import."""
    gate = session.resume_check()
    state = session.state()
    assert state is not None
    return {
        "events": [
            {name: value for name, value in one.items() if name not in OF_THE_PLACE}
            for one in session.events()
            if not is_of_an_import(one)
        ],
        "messages": [session.messages(format=form) for form in ("plain", "openai", "anthropic")],
        "pending": session.project("pending"),
        "gate": {name: gate[name] for name in ("status", "boundary", "turn", "reasons", "calls")},
        "transcript": unplaced(
            [
                part
                for part in session.project("transcript")
                if not any(map(is_of_an_import, part.get("entries", ())))
            ]
        ),
        "labels": state["labels"],
        "leaf": state["leaf"],
    }


def is_of_an_import(entry: dict[str, Any]) -> bool:
    """One of the two around what it brought."""
    words = ("begun", "ended")
    return entry["type"] == "imported" and any(word in entry["payload"] for word in words)


def unplaced(value: Any) -> Any:
    """JSON without seqs: an import begins with a word of its own."""
    if isinstance(value, dict):
        return {name: unplaced(one) for name, one in value.items() if not name.endswith("seq")}
    return [unplaced(one) for one in value] if isinstance(value, list) else value


def only(folder: Path) -> Path:
    """The one file there, whatever its name begins with."""
    (found,) = folder.iterdir()
    return found


@pytest.mark.parametrize("session_id", ["chat-1", HOSTILE])
def test_what_comes_back_is_what_went(
    session_id: str, daemon: DaemonProcess, cli: Cli, folder: Path
) -> None:
    session = daemon.reader.session(session_id)
    work(session)
    before, last_seq = told(session), session.events()[-1]["seq"]
    named = [one["sha256"] for one in session.project("audit")["artifacts"]]
    assert len(named) == 2
    held = [session.read_artifact(one) for one in named]
    code, out, err = cli("session", "archive", session_id, "--to", str(folder), "--json")
    assert code == 0, err
    (one,) = json.loads(out)["archived"]
    file = only(folder)
    assert one == {
        "session": session_id,
        "file": str(file),
        "events": last_seq,
        "bytes": file.stat().st_size,
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert session.messages() is None
    assert json.loads(cli("session", "ls", "--json")[1]) == []
    until(lambda: not daemon.holding([b"behind the undo"]), "a directory without a byte of it")
    assert json.loads(gzip.decompress(file.read_bytes()).splitlines()[0])["session"] == session_id
    daemon.restart()  # a deleted id comes back where nothing but its tombstone is known, too
    code, out, err = cli("session", "import", str(file), "--json")
    assert (code, json.loads(out)["new"], json.loads(out)["not_understood"]) == (0, last_seq, 0), (
        err
    )
    session = daemon.reader.session(session_id)
    assert told(session) == before
    assert [session.read_artifact(one) for one in named] == held
    events = session.events()
    kinds = [events[at]["type"] for at in (0, -1)]
    assert (kinds, events[1]["seq"], len(events)) == (["imported"] * 2, 2, last_seq + 2)
    assert json.loads(cli("session", "import", str(file), "--json")[1])["new"] == 0
    # It is a session like any other: it goes on, and may be archived again beside that file.
    session.submit("and now this").completed()
    code, out, err = cli("session", "archive", session_id, "--to", str(folder))
    assert (code, len(list(folder.iterdir()))) == (0, 2), err


def test_one_that_was_archived_already_is_found(
    daemon: DaemonProcess, cli: Cli, folder: Path
) -> None:
    daemon.reader.session("s").message("user", "hello")
    assert cli("session", "archive", "s", "--to", str(folder))[0] == 0
    code, out, _ = cli("session", "archive", "s", "--to", str(folder))
    assert (code, out) == (0, f"archived: s, 1 events, {only(folder)}\n")
    assert cli("session", "archive", "other", "--to", str(folder))[0] == 3
    assert cli("session", "archive", "s", "--to", str(folder / "none"))[0] == 64
    assert cli("session", "archive", "--to", str(folder))[0] == 64
    assert cli("session", "archive", "s", "--older-than", "1d")[0] == 64
    assert cli("session", "archive", "--older-than", "soon")[0] == 64


def test_what_is_open_stays(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], cli: Cli, folder: Path
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        turn = client.session("a turn").submit("hello")
        reply = client.reply("a reply", auto_release=False)
        reply.token("half a word")
        client.session("beside a reply").append("app.note", {})
        other = client.reply("beside a reply", auto_release=False)
        other.token("half a word")
        asked = client.session("asked").submit("delete all?", message_id="m")
        effect, policy = "external-write", "never-rerun"
        asked.intent("rm", {}, side_effect=effect, resume_policy=policy, call_id="c")
        asked.tool_started("c")
        (reply.stream_id, other.stream_id)
        """
    )
    until(lambda: daemon.reader.recover("a reply"), "a reply")
    until(lambda: daemon.reader.recover("beside a reply"), "a reply")
    names = ["a turn", "a reply", "beside a reply", "asked"]
    reader = daemon.reader

    def refused(wanted: dict[str, str]) -> None:
        for name, why in wanted.items():
            before = reader.session(name).events()
            code, out, err = cli("session", "archive", name, "--to", str(folder))
            assert (code, out) == (1, ""), name
            assert err.startswith(f"walld: session {name} stays: "), err
            assert why in err, err
            assert len(err.splitlines()) == 1
            assert reader.session(name).events() == before
            assert list(folder.iterdir()) == []

    refused({"a turn": "has not ended", "a reply": "is not released"})
    refused({"beside a reply": "is not released", "asked": "has not ended"})
    agent.kill()
    until(
        lambda: all(
            turn["state"] == "interrupted"
            for name in ("a turn", "asked")
            for turn in reader.session(name).state()["turns"]  # type: ignore[index]
        ),
        "two interruptions",
    )
    refused({"beside a reply": "is not released", "asked": "its gate is blocked: tool rm"})
    reader.session("asked").settle("c", "did_not_run")
    for name in names[1:3]:
        reply = daemon.orphan(reader.recover(name).stream_id)  # type: ignore[union-attr]
        reader.resolve(reply.stream_id)
    for name in ("a turn", "beside a reply", "asked"):
        assert cli("session", "archive", name, "--to", str(folder))[0] == 0, name
    assert len(list(folder.iterdir())) == 3


def test_the_work_of_a_call_that_is_open_elsewhere_stays(
    daemon: DaemonProcess, asking: SessionClient, cli: Cli, folder: Path
) -> None:
    parent = daemon.reader.session("parent")
    turn = parent.submit("delegate")
    effect, policy = "none", "replay-from-event"
    turn.intent("agent", {}, side_effect=effect, resume_policy=policy, call_id="c")
    turn.tool_started("c")
    child = parent.child("child", call_id="c")
    payload = json.dumps(child.events()[0]["payload"]).encode()
    entry = wire.NewEntry("child_of", payload, "link", leaf=False)
    code, _, err = cli("session", "archive", "child", "--to", str(folder))
    assert (code, "it is the work of call c of session parent" in err) == (1, True)
    turn.tool_finished("c", "done")
    turn.completed()
    assert cli("session", "archive", "child", "--to", str(folder))[0] == 0
    # Where the parent is gone nobody waits for it.
    asking.ask(lambda number: wire.Append(number, "child", [entry], unowned=True))
    assert daemon.reader.delete("parent")
    assert cli("session", "archive", "child", "--to", str(folder / ".."))[0] == 0


def test_the_work_of_the_second_call_of_an_id_stays(
    daemon: DaemonProcess, cli: Cli, folder: Path
) -> None:
    parent = daemon.reader.session("parent")
    turn = parent.submit("delegate twice")
    for result in ("the first", None):
        effect, policy = "external-write", "never-rerun"
        turn.intent("agent", {}, side_effect=effect, resume_policy=policy, call_id="call_1")
        turn.tool_started("call_1")
        if result is not None:
            turn.tool_finished("call_1", result)
            parent.message("assistant", "and once more", turn=turn.turn_id)
    child = parent.child("child", call_id="call_1")
    work = child.submit("work")
    child.message("assistant", "did it", turn=work.turn_id)
    work.interrupted("killed")  # answered, and nobody has told the parent
    before = parent.resume_check()
    assert before["status"] == "ok"
    code, _, err = cli("session", "archive", "child", "--to", str(folder))
    assert (code, list(folder.iterdir())) == (1, []), err
    assert "it is the work of call call_1 of session parent" in err
    after = parent.resume_check()
    assert (after["status"], after["calls"]) == (before["status"], before["calls"])
    turn.tool_finished("call_1", "did it")
    assert cli("session", "archive", "child", "--to", str(folder))[0] == 0
    assert parent.resume_check()["status"] == "ok"


def test_a_workspace_that_nobody_looks_at_keeps_no_session(
    daemon: DaemonProcess, cli: Cli, folder: Path, tmp_path: Path
) -> None:
    session = daemon.reader.session("s")
    session.checkpoint_workspace(tmp_path)
    assert session.resume_check()["status"] == "check"
    assert cli("session", "archive", "s", "--to", str(folder))[0] == 0


def test_those_that_are_old(
    daemon: DaemonProcess, asking: SessionClient, cli: Cli, folder: Path
) -> None:
    now_ms = int(time.time() * 1000)

    def make(name: str, at_ms: int, type_: str, payload: dict[str, Any]) -> None:
        entry = wire.NewEntry(type_, json.dumps(payload).encode(), name, at_ms=at_ms)
        asking.ask(lambda number: wire.Append(number, name, [entry], unowned=True))

    note, call = {"text": "x"}, [{"id": "c", "type": "function", "function": {"name": "rm"}}]
    make("old", now_ms - 31 * DAY_MS, "app.note", note)
    make("older", now_ms - 99 * DAY_MS, "app.note", note)
    make("new", now_ms - 29 * DAY_MS, "app.note", note)
    make("of the future", now_ms + 31 * DAY_MS, "app.note", note)
    make("open", now_ms - 31 * DAY_MS, "message", {"role": "assistant", "tool_calls": call})
    words = ("session", "archive", "--older-than", "30d", "--to", str(folder))
    code, out, err = cli(*words)
    assert (code, len(out.splitlines())) == (1, 2), "one stays that is open"
    assert err.startswith("walld: session open stays: its gate is blocked")
    left = sorted(one["session_id"] for one in json.loads(cli("session", "ls", "--json")[1]))
    assert left == ["new", "of the future", "open"]
    daemon.reader.session("open").settle("c", "did_not_run")
    assert cli(*words)[0] == 0, "what was settled now is no old one"
    assert len(list(folder.iterdir())) == 2
    assert cli("session", "import", str(next(folder.glob("older.*"))))[0] == 0
    assert cli(*words) == (0, "", ""), "what was brought back is not old: its import was today"


@contextmanager
def relay(path: str, daemon: str, name: bytes) -> Iterator[None]:
    """A socket before the daemon's that hangs up on who asks for a session of that name."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                begun.append(threading.Thread(target=serve, args=(near,)))
                begun[-1].start()

    def serve(near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as far:
            far.connect(daemon)
            back = threading.Thread(target=copy, args=(far, near, None))
            back.start()
            copy(near, far, name)
            back.join()

    def copy(one: socket.socket, other: socket.socket, name: bytes | None) -> None:
        with suppress(OSError):
            while (data := one.recv(1 << 16)) and (name is None or name not in data):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        begun = [threading.Thread(target=accept)]
        begun[0].start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            begun[0].join()
            for one in begun:
                one.join()


def test_one_that_fails_keeps_no_other(
    daemon: DaemonProcess, asking: SessionClient, folder: Path, tmp_path: Path
) -> None:
    names = ("a first", "b refused", "c hung up on", "d last")
    for name in names:
        entry = wire.NewEntry("app.note", b"{}", name, at_ms=1)
        asking.ask(partial(wire.Append, session_id=name, entries=[entry], unowned=True))
    (folder / f"{path_name(names[1])}.1.walld.gz").mkdir()
    path = str(tmp_path / "relay")
    words = ("session", "archive", "--older-than", "30d", "--to", str(folder), "--json")
    with relay(path, daemon.socket_path, names[2].encode()):
        done = daemon.cli(*words, "--socket", path)
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["kept"]) == (1, b"", [])
    assert sorted(one["session"] for one in told["archived"]) == ["a first", "d last"]
    reasons = {one["session"]: one["reason"] for one in told["failed"]}
    assert reasons.keys() == {"b refused", "c hung up on"}
    assert "Is a directory" in reasons["b refused"]
    assert "the daemon hung up" in reasons["c hung up on"]
    left = [one.session_id for one in daemon.reader.sessions()]
    assert sorted(left) == ["b refused", "c hung up on"]
    # A line each, where a person reads it.
    done = daemon.cli(*words[:-1], "--socket", daemon.socket_path)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert done.stderr.startswith(b"walld: session b refused: "), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_cut_or_changed_brings_nothing(
    daemon: DaemonProcess, cli: Cli, folder: Path, tmp_path: Path
) -> None:
    session = daemon.reader.session("s")
    work(session)
    assert cli("session", "archive", "s", "--to", str(folder))[0] == 0
    whole = only(folder).read_bytes()
    text = gzip.decompress(whole)
    lines = text.splitlines(keepends=True)
    length = len(whole)
    broken = {
        **{f"cut at {at}": whole[:at] for at in (2, 9, 40, length // 2, length - 8, length - 1)},
        **{
            f"changed at {at}": whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :]
            for at in (3, 60, length // 3, length - 20, length - 5)
        },
        "without its end": gzip.compress(b"".join(lines[:-1])),
        "without a line": gzip.compress(b"".join(lines[:3] + lines[4:])),
        "another order": gzip.compress(b"".join([lines[0], lines[2], lines[1], *lines[3:]])),
        "twice": whole + whole,
        "cut in its text": gzip.compress(text[:-9]),
        "of no archive": gzip.compress(b'{"walld":1,"last_seq":0}\n'),
        "empty": gzip.compress(b""),
    }
    file = tmp_path / "broken"
    for what, content in broken.items():
        file.write_bytes(content)
        code, out, err = cli("session", "import", str(file))
        assert (code, out, len(err.splitlines())) == (1, "", 1), what
        assert str(file) in err, what
    assert json.loads(cli("session", "ls", "--json")[1]) == []
    assert not any("/sessions/" in str(path) and path.name != ".deleted" for path in daemon.files())
    assert cli("session", "import", str(only(folder)))[0] == 0
    assert cli("session", "import", "/dev/null")[0] != 0


def test_a_session_that_was_begun_anew_is_not_mixed_with_the_old_one(
    daemon: DaemonProcess, cli: Cli, folder: Path
) -> None:
    session = daemon.reader.session("s")
    session.message("user", "the old one")
    assert cli("session", "archive", "s", "--to", str(folder))[0] == 0
    session.message("user", "the new one")
    file = str(only(folder))
    code, _, err = cli("session", "import", file)
    assert (code, "was begun anew" in err) == (1, True)
    assert [one["content"] for one in session.messages() or ()] == ["the new one"]
    assert cli("session", "import", file, "--session", "was s")[0] == 0
    messages = daemon.reader.session("was s").messages() or ()
    assert [one["content"] for one in messages] == ["the old one"]
    # Nor does its archive take the name of the other.
    code, _, err = cli("session", "archive", "s", "--to", str(folder))
    assert (code, "is there, and no archive of it" in err) == (1, True)
    held = archive_text.read(gzip.decompress(Path(file).read_bytes()).splitlines(keepends=True))
    assert b"the old one" in held.lines[1]


def test_a_disk_that_is_full_keeps_the_session(daemon: DaemonProcess, folder: Path) -> None:
    session = daemon.reader.session("s")
    session.artifact(os.urandom(200_000), "text/plain")
    before = session.events()
    words = ("session", "archive", "s", "--to", str(folder), "--socket", daemon.socket_path)
    command = shlex.join([sys.executable, "-m", "walld", *words])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 64; exec {command}"],
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, b"File too large" in done.stderr) == (1, True), done.stderr
    assert session.events() == before
    assert list(folder.iterdir()) == []


def test_a_hidden_file_of_somebody_elses_is_not_written(
    daemon: DaemonProcess, cli: Cli, folder: Path, tmp_path: Path
) -> None:
    daemon.reader.session("s").message("user", "a secret")
    other, hidden = tmp_path / "other", folder / ".s.1.walld.gz.tmp"
    other.write_bytes(b"theirs")
    other.chmod(0o644)
    for place in (hidden.hardlink_to, hidden.symlink_to):
        place(other)
        assert cli("session", "archive", "s", "--to", str(folder))[0] == 1
        assert other.read_bytes() == b"theirs"
        hidden.unlink()
    hidden.write_bytes(b"what a kill left")
    hidden.chmod(0o644)
    assert cli("session", "archive", "s", "--to", str(folder))[0] == 0
    assert stat.S_IMODE(only(folder).stat().st_mode) == 0o600


def test_two_that_archive_at_once_make_one_file(daemon: DaemonProcess, folder: Path) -> None:
    session = daemon.reader.session("s")
    work(session)
    words = ("session", "archive", "s", "--to", str(folder), "--socket", daemon.socket_path)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "walld", *words, "--timeout", "60"],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    ends = [(one.communicate()[1], one.returncode) for one in running]
    assert any(code == 0 for _, code in ends), ends
    assert {code for _, code in ends} <= {0, 1}, ends
    assert not any(b"a bug of walld" in said for said, _ in ends), ends
    assert session.messages() is None
    with open(only(folder), "rb") as file:
        assert archive_text.read(lines_of(file, "")).session_id == "s"


@needs_strace
@pytest.mark.parametrize("meanwhile", ["archived", "deleted", "gone on with"])
def test_a_file_that_has_its_name_is_never_removed(
    meanwhile: str, daemon: DaemonProcess, cli: Cli, folder: Path
) -> None:
    """The first is stopped as it gives its file the name, which lets another one in."""
    session = daemon.reader.session("s")
    session.message("user", "hello")
    words = ("session", "archive", "s", "--to", str(folder))
    stopping = ("-f", "-o", "/dev/null", "-e", "inject=rename:signal=STOP:when=1")
    first = subprocess.Popen(
        [
            *(str(shutil.which("strace")), "-e", "trace=rename", *stopping),
            *(sys.executable, "-m", "walld", *words),
            *("--socket", daemon.socket_path, "--timeout", "60"),
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    file = folder / "s.1.walld.gz"
    try:
        until(file.exists, "a file that has its name")
        if meanwhile == "archived":
            assert cli(*words) == (0, f"archived: s, 1 events, {file}\n", "")
        elif meanwhile == "deleted":
            assert daemon.reader.delete("s")
        else:
            session.message("assistant", "and more")
    finally:
        os.killpg(first.pid, signal.SIGCONT)
        out, err = (text.decode() for text in first.communicate(timeout=60))
    assert only(folder) == file
    with open(file, "rb") as held:
        assert archive_text.read(lines_of(held, "")).last_seq == 1
    if meanwhile != "gone on with":
        assert (first.returncode, out, err) == (0, f"archived: s, 1 events, {file}\n", "")
        return
    assert (first.returncode, out) == (1, "")
    assert err == (
        f"walld: session s stays: it was gone on with meanwhile; {file} has it up to event 1\n"
    )
    # The older one brings nothing to the session that went on, and the next stands beside it.
    assert json.loads(cli("session", "import", str(file), "--json")[1])["new"] == 0
    assert len(session.events()) == 2
    assert cli(*words)[:2] == (0, f"archived: s, 2 events, {folder / 's.2.walld.gz'}\n")
    assert cli(*words)[:2] == (0, f"archived: s, 2 events, {folder / 's.2.walld.gz'}\n")
    for name, new in (("s.1.walld.gz", 1), ("s.2.walld.gz", 1)):
        code, out, err = cli("session", "import", str(folder / name), "--json")
        assert (code, json.loads(out)["new"]) == (0, new), err
    assert [one["content"] for one in session.messages() or ()] == ["hello", "and more"]
    assert session.resume_check()["status"] == "ok"
