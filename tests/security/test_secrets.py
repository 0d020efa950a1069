"""What agents say stays where it belongs: in no log, no error, no core file, no other place."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest
from agents.process import MakeAgent
from daemon_process import DaemonProcess, MakeDaemon, until
from walld_client.wire import messages as wire
from wire_peer import Peer
from wire_peer import logged as wait_for_log

from walld import limits
from walld.sessions.state.events import KNOWN

CANARY = "canary7f3a"

SAYS_IT_EVERYWHERE = f"""
reply = client.reply("s", stream_id="r", meta={{"k": {CANARY!r}}})
reply.token({CANARY!r}); reply.token({CANARY!r}, info={{"k": {CANARY!r}}})
reply.reasoning({CANARY!r}); reply.step()
reply.tool("tool", {{"k": {CANARY!r}}}, call_id="c"); reply.tool_result({CANARY!r}, call_id="c")
reply.tool("open", {CANARY!r} + "not json", call_id="d")
reply.event("kind", {{"k": {CANARY!r}}}); reply.retry("because"); reply.token({CANARY!r})
reply.drain(20, "synced")
"""


@pytest.fixture(params=["text", "json"])
def talkative(request: pytest.FixtureRequest, make_daemon: MakeDaemon) -> DaemonProcess:
    """Each log format, with all that Python itself can be made to say."""
    os.environ["PYTHONASYNCIODEBUG"] = "1"
    try:
        return make_daemon("--log-format", request.param, backend="asyncio").start()
    finally:
        del os.environ["PYTHONASYNCIODEBUG"]


def logged(daemon: DaemonProcess, tmp_path: Path) -> str:
    """All that the daemon and the agents have written for people."""
    agents = tmp_path / "agents.log"
    return daemon.log_text() + (agents.read_text(errors="replace") if agents.exists() else "")


def test_a_life_with_every_kind_of_trouble_leaves_no_word_in_a_log(
    talkative: DaemonProcess, make_agent: MakeAgent, tmp_path: Path
) -> None:
    daemon = talkative
    agent = make_agent(daemon)
    agent.do(SAYS_IT_EVERYWHERE)
    refuse_everything(daemon)
    second = make_agent(daemon)  # a second producer is refused, with its text in hand
    second.do(f"reply = client.reply('s', stream_id='r'); reply.token({CANARY!r})")
    second.do("import contextlib, walld_client")
    second.do("with contextlib.suppress(walld_client.Refused): reply.drain(5)")
    agent.kill()
    until(daemon.partials, "a partial")
    damage_all(daemon)
    daemon.restart()
    for command in (("status",), ("status", "--prometheus"), ("ls",)):
        done = daemon.cli(*command, "--socket", daemon.socket_path)
        assert CANARY.encode() not in done.stdout + done.stderr, command
    daemon.cli("recover", "s", "--socket", daemon.socket_path)
    assert daemon.terminate() == 0
    wait_for_log(second.log_path, "refused")  # the client did speak
    second.kill()
    assert "corrupt" in daemon.log_text() or "damaged" in daemon.log_text(), "and the daemon"
    assert CANARY not in logged(daemon, tmp_path)


def refuse_everything(daemon: DaemonProcess) -> None:
    """Frames that cannot be taken, each with the text in it; no answer may hold it."""
    raw = CANARY.encode()
    bodies = [
        b"\x94\x03\x01\x01" + bytes((0xA0 | len(raw),)) + raw,  # text as str
        b"\x95\x03\x01\xa3seq\xc4" + bytes((len(raw),)) + raw,
        b"\x99\x02\x01\x00\xc4" + bytes((len(raw),)) + raw,
        b"\x81\xa1k" + bytes((0xA0 | len(raw),)) + raw,
        bytes((0xA0 | len(raw),)) + raw,
        raw,
    ]
    for body in bodies:
        for role in ("agent", "query", None):
            with Peer(daemon, role) as peer:  # type: ignore[arg-type]
                peer.socket.sendall(len(body).to_bytes(4, "big") + body)
                answer = peer.hear()
                assert isinstance(answer, (wire.Refused, wire.Error)), answer
                assert CANARY not in str(answer)
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        long = raw * 104_448
        peer.send(wire.Start(1, 0, "long", "s"), wire.Token(1, 1, long[: 1 << 20][:-32]))
        peer.send(wire.Token(9, 1, raw), wire.Run(1, 1, 3, b"\x01", raw), wire.End(1, 1, True))
        peer.send(wire.Token(1, 2, raw), wire.Start(2, 0, "r", "s"), wire.Drain(1, "written"))
        while not isinstance(answer := peer.hear(), wire.Drained):
            assert isinstance(answer, wire.Refused), answer
            assert CANARY not in str(answer)


def damage_all(daemon: DaemonProcess) -> None:
    """Every file with the text in it gets a flipped byte: what is said of that is no text."""
    daemon.kill()
    for path in daemon.files():
        content = path.read_bytes()
        at = content.find(CANARY.encode())
        if at >= 0:
            path.write_bytes(content[:at] + b"C" + content[at + 1 :])


def test_no_core_file_holds_it(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    """The limit is 0, hard and soft, and a daemon that is made to crash leaves none."""
    assert daemon.process is not None
    make_agent(daemon).do(SAYS_IT_EVERYWHERE)
    limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.M)
    stands_in = Path(os.readlink(f"/proc/{daemon.process.pid}/cwd"))
    before = set(stands_in.iterdir())
    os.kill(daemon.process.pid, signal.SIGSEGV)
    assert daemon.ended() == -signal.SIGSEGV
    assert set(stands_in.iterdir()) == before


def test_at_rest_it_lies_in_files_of_the_daemon_alone(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """0600 in 0700, whatever the umask; and in no file outside the data directory."""
    daemon = make_daemon()
    daemon.is_executed = True  # a fork shows the command line and environment of its server
    daemon.start()
    agent = make_agent(daemon)
    agent.do(SAYS_IT_EVERYWHERE)
    agent.kill()
    until(daemon.partials, "a partial")
    assert len(daemon.holding([CANARY.encode()])) >= 1
    for path in [daemon.data, *daemon.data.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert path.stat().st_uid == os.geteuid()
    assert daemon.process is not None
    for name in ("cmdline", "environ", "comm"):
        content = Path(f"/proc/{daemon.process.pid}/{name}").read_bytes()
        assert CANARY.encode() not in content, name


def test_what_a_person_asks_for_is_all_that_prints_it(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """Lists, status, `fsck` and `config` never do; `recover` and `dump --items` are asked to."""
    agent = make_agent(daemon)
    agent.do(SAYS_IT_EVERYWHERE.replace("meta=", "auto_release=False) #"))  # a list shows meta
    agent.kill()
    until(daemon.partials, "a partial")
    at, data = ("--socket", daemon.socket_path), str(daemon.data)
    for command in (
        ("ls", "--json", *at),
        ("ls", "--data", data),
        ("status", "--json", *at),
        ("fsck", data),
        ("dump", "--data", data),
        ("config", "--json"),
    ):
        done = daemon.cli(*command)
        assert done.returncode == 0, done
        assert CANARY.encode() not in done.stdout + done.stderr, command
    assert CANARY.encode() in daemon.cli("recover", "s", "--text", *at).stdout
    assert CANARY.encode() in daemon.cli("dump", "--items", "--data", data).stdout


def test_no_error_shows_what_an_entry_holds(make_daemon: MakeDaemon) -> None:
    """A field of the wrong kind was shown to whoever sent it, and stands in that program's log."""
    daemon = make_daemon().start()
    values = (CANARY, [CANARY], {CANARY: CANARY}, [[CANARY]])
    asked = [
        (kind, field.name, value)
        for kind, fields in KNOWN.items()
        for field in fields
        for value in values
        if not field.fits(value)
    ]
    assert len(asked) > 100
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        for number, (kind, name, value) in enumerate(asked, 1):
            others = {field.name: 1 for field in KNOWN[kind] if field.fits(1)}
            payload = json.dumps({**others, name: value}).encode()
            peer.send(wire.Append(number, "s", [wire.NewEntry(kind, payload, f"{number}")]))
            said = peer.hear()
            assert isinstance(said, wire.Error), (kind, name)
            assert said.code == "bad_payload"
            assert CANARY not in f"{said.message} {said.got} {said.limit}", (kind, name)


def test_what_an_error_shows_is_short(make_daemon: MakeDaemon) -> None:
    """It was as long as what was asked for: 900 KB of an id that no session has."""
    daemon = make_daemon().start()
    long = "long" * 200_000
    entry = wire.NewEntry("turn_worker_started", b"{}", "a", turn="t")
    requests: tuple[wire.FromQuery, ...] = (
        wire.Fork(1, long, "new"),
        wire.Fork(1, "s", "new", long),
        wire.Project(1, "s", long),
        wire.Append(1, "s", [entry], None, long),
        wire.Recover(1, long),
    )
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        peer.ask(wire.Append(1, "s", [wire.NewEntry("note", b"{}", "a")]))
        for request in requests:
            peer.send(request)
            said = peer.hear()
            assert isinstance(said, wire.Error)
            assert len(said.message) + len(said.got) + len(said.limit) < 4 * limits.ID_BYTES_MAX
