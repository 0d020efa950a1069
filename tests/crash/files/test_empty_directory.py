"""The data directory is empty where data should be: a mount that is not there, another HOME.

A start cannot tell that from a first install; a client that an earlier daemon told of its log can,
and so can the unit and the operator. Until somebody has looked, "nothing" is not proven then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import walld_client
from agents.process import MakeAgent, Obedient
from daemon_process import DaemonProcess, MakeDaemon, environment, until, walld
from walld_client.query import offline
from walld_client.wire import messages as wire
from wire_peer import Peer

from walld.disk.lock_record import LockRecord, lock_record

BEGIN = """
    other = client.reply("O", stream_id="O")
    assert other.drain(20, "synced")
"""
SAY = """
    reply = client.reply("S", stream_id="R")
    reply.token("words")
    assert reply.drain(20, "synced")
    reply.end()
    assert reply.drain(20, "synced")
"""
ROW = f"other-log.{os.geteuid()}"


def recovers(daemon: DaemonProcess) -> int:
    """Exit code of `walld recover` of a session that is not there."""
    return daemon.cli("recover", "S", "--socket", daemon.socket_path).returncode


def is_proven(daemon: DaemonProcess) -> bool:
    """What every request about what is not there is answered; all of them alike."""
    asked = (
        lambda: daemon.reader.recover("S"),
        lambda: daemon.reader.recover_all("S"),
        lambda: daemon.reader.session("S").events(),
        lambda: daemon.reader.session("S").messages(),
        daemon.reader.sessions,
    )
    told = []
    for ask in asked:
        try:
            told.append(not ask())
        except walld_client.Unavailable as error:
            assert "other-log" in str(error), error  # noqa: PT017
            told.append(False)
    told.append(daemon.reader.has_partial("S") is False)
    assert len(set(told)) == 1, told
    return told[0]


def lose_the_mount(daemon: DaemonProcess) -> Path:
    """The daemon ends, and its directory is not there any more. Where it is."""
    daemon.kill()
    away = daemon.data.with_name("away")
    daemon.data.rename(away)
    return away


def acknowledge(daemon: DaemonProcess, row: str) -> None:
    """What an operator does."""
    assert daemon.terminate() == 0
    (daemon.data / "quarantine" / row).rename(daemon.home / row)
    daemon.start()


@pytest.fixture
def returned(make_daemon: MakeDaemon, make_agent: MakeAgent) -> tuple[DaemonProcess, Obedient]:
    """A daemon on an empty directory, and an agent that the one before told of its log."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do(BEGIN)
    agent.do(SAY)
    lose_the_mount(daemon)
    daemon.start()
    daemon.logged("knows of another log")
    return daemon, agent


def test_a_first_install_answers_as_ever_and_says_when_it_was_made(daemon: DaemonProcess) -> None:
    daemon.logged(f"new directory: {daemon.data} was empty")
    made_at_ms = daemon.status()["new_directory"]
    assert made_at_ms > 1_700_000_000_000
    assert is_proven(daemon)
    assert recovers(daemon) == 3
    since = b"walld: nothing to recover in a directory that was empty on "
    assert since in daemon.cli("recover", "S", "--socket", daemon.socket_path).stderr
    daemon.restart()
    assert daemon.status()["new_directory"] == made_at_ms, "a later start finds it as it is"
    assert daemon.log_text().count("new directory:") == 1
    assert is_proven(daemon)
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        requests = (
            wire.Recover(1, "all"),
            wire.HasPartial(2, "S"),
            wire.List(3),
            wire.Events(4, "S"),
            wire.Project(5, "S", "state"),
            wire.Sessions(6),
        )
        for request in requests:
            peer.send(request)
            answer = peer.hear()
            assert isinstance(answer, wire.Answer)
            assert (answer.id, answer.new_directory) == (request.id, made_at_ms)
        peer.send(wire.Metrics(7))
        answer = peer.hear()
        assert isinstance(answer, wire.Answer)
        assert answer.new_directory == 0


def test_what_a_returning_client_knows_of_is_not_called_nothing(
    returned: tuple[DaemonProcess, Obedient],
) -> None:
    daemon, agent = returned
    assert not is_proven(daemon)
    assert recovers(daemon) == 1
    until((daemon.data / "quarantine" / ROW).exists, "a row")
    agent.kill()
    daemon.restart()
    assert not is_proven(daemon), "the next daemon knows, and nobody is left to say it again"
    assert daemon.terminate() == 0
    assert daemon.cli("recover", "S", "--data", str(daemon.data)).returncode == 1
    assert offline.has_partial(str(daemon.data), os.geteuid(), "S") is None
    other = ("recover", "S", "--data", str(daemon.data), "--uid", str(os.geteuid() + 1))
    assert daemon.cli(*other).returncode == 3
    daemon.start()
    acknowledge(daemon, ROW)
    assert is_proven(daemon)
    assert recovers(daemon) == 3


def test_it_is_written_before_that_client_is_let_in(
    returned: tuple[DaemonProcess, Obedient],
) -> None:
    """Once it was told of this log it would not say the other's name again."""
    daemon, agent = returned
    until(lambda: daemon.status()["connections"] > 1, "an agent")
    agent.do("reply = client.reply('T'); reply.token('x'); assert reply.drain(20, 'synced')")
    assert (daemon.data / "quarantine" / ROW).exists()
    agent.kill()
    daemon.kill()
    shutil.rmtree(daemon.data / "partials")
    (daemon.data / "partials").mkdir(mode=0o700)
    daemon.start()
    assert recovers(daemon) == 1


def test_who_asks_says_it_on_the_connection_that_asks(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """One that is done with all it said does not come back to say it. Once acknowledged, the name
    that it repeats, being told of nothing since, does not bring the row back.
    """
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do(SAY)
    lose_the_mount(daemon)
    daemon.start()
    assert is_proven(daemon)
    assert agent.do("client.has_partial('S')") is None
    assert not is_proven(daemon)
    until((daemon.data / "quarantine" / ROW).exists, "a row")
    assert daemon.terminate() == 0
    assert offline.has_partial(str(daemon.data), os.geteuid(), "S") is None
    assert offline.has_partial(str(daemon.data), os.geteuid() + 1, "S") is False
    daemon.start()
    acknowledge(daemon, ROW)
    assert agent.do("client.has_partial('S')") is False
    assert is_proven(daemon)
    assert daemon.log_text().count("knows of another log") == 1


def test_without_a_daemon_an_empty_directory_proves_nothing(tmp_path: Path) -> None:
    """With --expect-data none starts there; who reads it without one must not say "nothing"."""
    empty = tmp_path / "data"
    for _ in range(2):
        with closing(walld_client.connect(tmp_path / "none", data=empty)) as client:
            assert client.has_partial("S") is None
            with pytest.raises(walld_client.Unavailable):
                client.recover("S")
        for command in (("recover", "S"), ("ls",)):
            assert walld(*command, "--data", empty).returncode == 1, command
        empty.mkdir(mode=0o700, exist_ok=True)


def test_a_stranger_speaks_for_himself_alone_and_is_bounded(daemon: DaemonProcess) -> None:
    """Any number of names of logs come to one row, and few lines."""
    for number in range(50):
        hello = wire.Hello(1, "agent", os.urandom(16), log=number.to_bytes(16, "big"), synced_no=9)
        with Peer(daemon, None) as peer:  # type: ignore[arg-type]
            peer.send(hello)
            assert isinstance(peer.hear(), wire.Welcome)
    until(lambda: (daemon.data / "made").stat().st_size > 200, "what was heard is written")
    assert daemon.logged("knows of another log").count("knows of another log") == 1
    assert daemon.terminate() == 0  # so that no row is half-way into its place
    assert {one.name for one in (daemon.data / "quarantine").iterdir()} <= {ROW}
    assert (daemon.data / "made").stat().st_size < 1000


def test_a_client_of_this_log_brings_no_row(daemon: DaemonProcess, make_agent: MakeAgent) -> None:
    agent = make_agent(daemon)
    agent.do(SAY)
    daemon.restart()
    agent.do("reply.release(); assert client.reply('T').drain(20, 'synced')")
    assert not (daemon.data / "quarantine" / ROW).exists()


def test_where_an_operator_knows_of_another_log_nothing_is_proven(daemon: DaemonProcess) -> None:
    assert daemon.terminate() == 0
    (daemon.data / "quarantine" / "other-log").touch()
    daemon.start()
    assert not is_proven(daemon)
    status = daemon.status()
    assert status["state"] == "degraded"
    assert "quarantine/other-log" in status["trouble"], status["trouble"]
    daemon.restart()
    assert not is_proven(daemon)
    assert daemon.terminate() == 0
    assert daemon.cli("recover", "S", "--data", str(daemon.data)).returncode == 1
    assert offline.has_partial(str(daemon.data), os.geteuid(), "S") is None
    daemon.start()
    acknowledge(daemon, "other-log")
    assert is_proven(daemon)
    assert daemon.status()["state"] == "ok"
    assert recovers(daemon) == 3


@pytest.mark.parametrize("there", ["nothing", "an empty directory", "what a killed start left"])
def test_where_data_is_expected_no_daemon_starts_without_it(
    make_daemon: MakeDaemon, there: str
) -> None:
    """One line with the command, and nothing is made: neither folder nor LOCK nor socket."""
    daemon = make_daemon("--expect-data")
    if there == "an empty directory":
        daemon.data.mkdir(mode=0o700)
    elif there == "what a killed start left":
        for name in ("wal", "partials", "sessions", "quarantine"):
            (daemon.data / name).mkdir(mode=0o700, parents=True)
        (daemon.data / "LOCK").write_bytes(lock_record(LockRecord(1, bytes(range(16)))))
    before = sorted(daemon.home.rglob("*"))
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.process.wait(30) == 1
    command = f"mkdir -pm 700 {daemon.data} && touch {daemon.data}/made"
    (line,) = daemon.log_text().splitlines()
    assert f"{daemon.data} holds no data" in line
    assert line.endswith(command), line
    assert sorted(one for one in daemon.home.rglob("*") if one != daemon.log_path) == [
        one for one in before if one != daemon.log_path
    ]
    daemon.process = None
    subprocess.run(command, shell=True, check=True)
    daemon.start()
    assert daemon.status()["new_directory"], "it is a new one all the same"
    assert "is damaged" not in daemon.log_text()
    assert is_proven(daemon)
    daemon.restart()
    assert is_proven(daemon), "and from then on there is data"


@pytest.mark.parametrize("kept", ["all", "no file made, by a build before it", "a session alone"])
def test_where_data_is_expected_and_there_it_starts(daemon: DaemonProcess, kept: str) -> None:
    reply = daemon.reader.reply("S")
    reply.token("words")
    assert reply.drain(20, "synced")
    assert daemon.terminate() == 0
    if kept != "all":
        (daemon.data / "made").unlink()
    if kept == "a session alone":
        (daemon.data / "sessions" / str(os.geteuid())).mkdir(mode=0o700)
        shutil.rmtree(daemon.data / "wal")
        (daemon.data / "LOCK").unlink()
    daemon.options.append("--expect-data")
    daemon.start()
    assert daemon.cli("recover", "S", "--socket", daemon.socket_path).returncode in (0, 1)


def test_the_variable_says_the_same(daemon: DaemonProcess, tmp_path: Path) -> None:
    words = ("serve", "--data", str(tmp_path / "none"), "--socket", str(tmp_path / "s"))
    ran = subprocess.run(
        [sys.executable, "-m", "walld", *words],
        env=environment() | {"WALLD_EXPECT_DATA": "yes"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 1
    assert b"none holds no data" in ran.stderr
    assert not (tmp_path / "none").exists()


def test_what_is_here_is_served_with_the_doubt(returned: tuple[DaemonProcess, Obedient]) -> None:
    daemon, agent = returned
    agent.do("other = client.reply('T', stream_id='T'); other.token('new'); other.drain(20)")
    reply = daemon.arrived("T", 1)
    assert (reply.text, reply.doubt) == ("new", None)
    (reply,) = [one for one in daemon.reader.recover_all() if one.stream_id == "T"]
    assert reply.doubt is not None
    assert "another log" in reply.doubt


def test_a_daemon_that_was_killed_as_it_made_its_directory(make_daemon: MakeDaemon) -> None:
    """LOCK and directories are there, and no segment was: the next start makes it."""
    daemon = make_daemon().start()
    daemon.kill()
    (daemon.data / "made").unlink()
    shutil.rmtree(daemon.data / "wal")
    (daemon.data / "wal").mkdir()
    lock = (daemon.data / "LOCK").read_bytes()
    (daemon.data / "LOCK").write_bytes(lock[:72].ljust(160))
    daemon.start()
    assert daemon.status()["new_directory"]
    assert is_proven(daemon)


def test_a_damaged_note_costs_nothing_but_what_it_said(daemon: DaemonProcess) -> None:
    daemon.kill()
    made = daemon.data / "made"
    made.write_bytes(made.read_bytes().replace(b"at_ms", b"xt_ms"))
    daemon.start()
    daemon.logged("made: is damaged")
    assert daemon.status()["new_directory"] is None
    assert is_proven(daemon)
    assert msgspec.json.decode(made.read_bytes().rpartition(b" ")[0])
