"""Two users, one session name: for each of them the other's replies do not exist (P12)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

ALICE, BOB = 61001, 61002

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="agents of two uids: only root may become somebody else"
)


@pytest.fixture
def shared(make_daemon: Callable[..., DaemonProcess], backend: str) -> DaemonProcess:
    """A daemon that every user may connect to."""
    daemon = make_daemon("--socket-mode", "0666", backend=backend)
    os.chmod(daemon.folder, 0o711)
    return daemon.start()


def test_one_session_name_two_users(
    shared: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    alice = make_agent(shared, uid=ALICE)
    bob = make_agent(shared, uid=BOB)
    alice.do("reply = client.reply('s', stream_id='r'); reply.token('of alice'); reply.drain(20)")
    assert bob.do("client.recover('s'), client.has_partial('s')") == [None, False]
    bob.do("reply = client.reply('s', stream_id='r'); reply.token('of bob'); reply.drain(20)")
    texts = "[reply.text for reply in client.recover_all()], client.stats().refused"
    assert alice.do(texts) == [["of alice"], 0]
    assert bob.do(texts) == [["of bob"], 0]
    assert shared.reader.recover("s") is None, "root is a user like any other unless it says whose"
    bob.kill()

    def is_orphan() -> bool:
        return bool(heir.do("[reply.text for reply in client.orphans('s')] == ['of bob']"))

    heir = make_agent(shared, uid=BOB)
    until(is_orphan, "bob's orphan, for bob")
    assert alice.do("client.orphans('s'), client.resolve('unknown')") == [[], False]
    until(shared.partials, "the partial")
    (partial,) = shared.partials()
    assert partial.parts[-3] == str(BOB)
    shared.restart()
    assert heir.do("client.recover(stream_id='r').text") == "of bob"
    assert alice.do("client.recover(stream_id='r').text") == "of alice"
    assert heir.do("client.resolve('r'), client.recover('s')") == [True, None]
    assert alice.do("client.recover('s').status") == "live"
    named = shared.cli(
        "recover", "s", "--text", "--uid", str(ALICE), "--socket", shared.socket_path
    )
    assert named.stdout == b"of alice\n"


def test_another_user_resolves_and_asks_for_nobody_but_himself(
    shared: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    alice = make_agent(shared, uid=ALICE)
    alice.do("reply = client.reply('s', stream_id='r'); reply.token('x'); reply.drain(20)")
    alice.kill()
    until(shared.partials, "the partial")
    bob = make_agent(shared, uid=BOB)
    assert bob.do("client.resolve('r')") is False
    code = bob.do(
        f"""
        from walld_client.wire import messages
        try:
            client._query.ask(lambda id: messages.Recover(id, 'all', None, None, [], {ALICE}))
        except walld_client.Refused as error:
            code = error.code
        except walld_client.Unavailable as error:
            code = str(error)
        code
        """
    )
    assert "foreign_uid" in code
    assert shared.partials(), "still there"


def test_files_are_the_daemons_alone(
    shared: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    alice = make_agent(shared, uid=ALICE)
    alice.do("reply = client.reply('s', stream_id='r'); reply.token('x'); reply.drain(20)")
    alice.kill()
    until(shared.partials, "the partial")
    paths = [shared.data, *shared.data.rglob("*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()}
    folder_modes = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()}
    assert (modes, folder_modes) == ({0o600}, {0o700})
    bob = make_agent(shared, uid=BOB)
    assert bob.do(f"import os; os.access({str(shared.data)!r}, os.R_OK)") is False
