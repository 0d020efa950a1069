"""What a stranger wrote never acts on the terminal of whoever looks: every command, every form.

Through a real daemon and from its directory; in ids, text, tools, errors, paths and settings.
`unit/test_escape.py` has the characters one by one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until
from evil_text import CONTROL, EVIL, SHOWN

from walld.cli import main

SESSION, STREAM = f"session {EVIL}", f"stream {EVIL}"


@pytest.fixture
def spoken(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> DaemonProcess:
    """An orphan in which everything that can be said is evil."""
    agent = make_agent(daemon)
    agent.do(
        f"""
        reply = client.reply({SESSION!r}, stream_id={STREAM!r}, turn_id={EVIL!r}, parent={EVIL!r})
        reply.token({EVIL!r}); reply.reasoning({EVIL!r}); reply.step()
        reply.tool({EVIL!r}, {{"a": {EVIL!r}}}, call_id={EVIL!r})
        reply.tool_result({EVIL!r}, call_id={EVIL!r}); reply.tool({EVIL!r}, call_id="open")
        reply.event({EVIL!r}, {{"a": {EVIL!r}}}); reply.retry({EVIL!r}); reply.token({EVIL!r})
        reply.finish({EVIL!r}); reply.error({EVIL!r}, kind={EVIL!r}); reply.drain(20, "synced")
        """
    )
    agent.kill()
    until(daemon.partials, "a partial")
    return daemon


def harmless(daemon: DaemonProcess, *arguments: str, shows: bool = True) -> None:
    """A command prints nothing that acts, on either stream, and still shows what was said."""
    done = daemon.cli(*arguments)
    judged(arguments, done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode(), shows)


def judged(arguments: tuple[str, ...], out: str, error: str, shows: bool) -> None:
    for text in (out, error):
        assert CONTROL.findall(text) == [], (arguments, text)
        assert "Traceback" not in text, arguments
        assert "a bug of walld" not in text, arguments
    assert not shows or SHOWN in out + error, (arguments, out, error)
    if "--json" in arguments and out:
        for line in out.splitlines() if arguments[0] == "dump" else [out]:
            json.loads(line)


def test_through_a_daemon(spoken: DaemonProcess) -> None:
    at = ("--socket", spoken.socket_path)
    harmless(spoken, "ls", *at)
    harmless(spoken, "ls", "--json", *at)
    for form in ((), ("--json",), ("--text",)):
        harmless(spoken, "recover", SESSION, *form, *at)
    for form in ((), ("--json",), ("--prometheus",)):
        harmless(spoken, "status", *form, *at, shows=False)
    harmless(spoken, "recover", EVIL, *at, shows=False)
    harmless(spoken, "resolve", STREAM, "--last-seq", "0", *at, shows=False)
    harmless(spoken, "resolve", STREAM, *at)


def test_from_its_directory(
    spoken: DaemonProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole, and damaged in the middle, below a path that is evil itself."""

    def quiet(*arguments: str, shows: bool = True) -> None:
        main(arguments)
        judged(arguments, *capsys.readouterr(), shows)

    assert spoken.terminate() == 0
    data = tmp_path / f"data {EVIL}"
    shutil.copytree(spoken.data, data)
    for damaged in (False, True):
        if damaged:
            (partial,) = (path for path in (data / "partials").rglob("*") if path.is_file())
            partial.write_bytes(partial.read_bytes()[:-3] + b"\x1b[2")
            for segment in (data / "wal").iterdir():
                segment.write_bytes(segment.read_bytes().replace(b"owned", b"OWNED"))
        at = ("--data", str(data))
        for command in (
            ("ls", *at),
            ("ls", *at, "--json"),
            ("recover", SESSION, *at),
            ("recover", SESSION, *at, "--json"),
            ("recover", SESSION, *at, "--text"),
            ("dump", *at),
            ("dump", *at, "--items"),
            ("dump", *at, "--items", "--json"),
            ("dump", "--items", *(str(one) for one in (data / "wal").iterdir())),
            ("fsck", str(data)),
            ("fsck", str(data), "--json"),
        ):
            quiet(*command, shows=not damaged)
        new = tmp_path / f"new {damaged} {EVIL}"
        quiet("salvage", str(data), "--to", str(new))
        quiet("salvage", str(data), "--to", str(new))  # refused: it is there


def test_what_was_typed_and_where_it_came_from(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Paths, settings and mistakes: what a script passes on may come from a stranger too."""
    evil = str(tmp_path / EVIL)
    for command in (
        ("config", "--data", evil, "--socket", f"/run/{EVIL[:30]}"),
        ("status", "--socket", evil),
        ("ls", "--data", evil),
        ("fsck", evil),
        ("dump", evil),
        ("dump", "--data", evil),
        ("salvage", evil, "--to", evil + "2"),
        ("config", "--config", evil),
        ("config", "--flush-bound-ms", EVIL),
        ("serve", "--data", "/proc/nowhere" + EVIL, "--socket", f"{daemon.folder}/t"),
    ):
        harmless(daemon, *command)


def test_in_the_log(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> None:
    """What a peer names reaches the log in a line of its own and in no other way."""
    agent = make_agent(daemon)
    agent.do(
        f"""
        from walld_client.wire import messages as wire
        import walld_client
        def ask(make):
            try:
                client._query.ask(make)
            except (walld_client.Refused, walld_client.Unavailable):
                pass
        ask(lambda id: wire.Recover(id, {EVIL!r}))
        ask(lambda id: wire.Recover(id, "latest", {EVIL!r}))
        """
    )
    agent.do(f"reply = client.reply({EVIL!r}, stream_id={EVIL!r}); reply.token('x')")
    agent.do("reply.drain(20)")
    agent.kill()
    until(daemon.partials, "a partial")
    daemon.restart()
    assert CONTROL.findall(daemon.log_text()) == []
