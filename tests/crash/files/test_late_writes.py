"""What an owner wrote comes to its segment when another daemon has taken the directory (SIM13).

So it does from a machine that was suspended: its kernel writes back to the file server what it
held. Here its bytes are put where they would have come to.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from agents.process import MakeAgent
from crash.files.test_newest_segment import say
from daemon_process import DaemonProcess, MakeDaemon


def goes_on(daemon: DaemonProcess) -> None:
    """Whoever is acknowledged has said what was, and of what came too late there is nothing."""
    for name in ("early", "held"):
        reply = daemon.reader.recover(f"session-{name}")
        assert reply is not None
        assert (reply.text, reply.gaps) == ("0 1 2 ", [])
    assert daemon.reader.recover("session-late") is None


def test_it_takes_nothing_from_the_next_owner(
    make_daemon: MakeDaemon, make_agent: MakeAgent, tmp_path: Path
) -> None:
    old, following = make_daemon().start(), make_daemon()
    say(old, make_agent, "early")  # who lives, so that its segment stays
    shutil.copytree(old.data, following.data)
    late = say(old, make_agent, "late")
    late.do("client.session('late').submit('x').turn_id")
    (segment,) = old.segments()
    written = segment.read_bytes()
    old.kill()
    late.kill()

    following.start()
    held = say(following, make_agent, "held")
    held.do("client.session('held').submit('mine').turn_id")
    found, *_ = following.segments()
    assert written.startswith(found.read_bytes()), "as the next owner found it"
    found.write_bytes(written)
    held.kill()
    following.kill()
    for command in (("fsck",), ("recover", "session-held", "--data")):
        done = following.cli(*command, str(following.data))
        assert done.returncode in (0, 1) if command == ("fsck",) else done.returncode == 0, done
    for _ in range(2):
        following.start()
        goes_on(following)
        messages = following.reader.session("held").messages()
        assert [one["content"] for one in messages or []] == ["mine"]
        assert following.reader.session("late").messages() is None
        following.kill()


def test_what_the_next_owner_found_torn_stays_so(
    make_daemon: MakeDaemon, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """A part of the batch had come to the file server by then, its header too: it has a number."""
    old, following = make_daemon().start(), make_daemon()
    say(old, make_agent, "early")  # who lives, so that its segment stays
    (segment,) = old.segments()
    before = segment.stat().st_size
    late = make_agent(old)
    late.do("r = client.reply('session-late', stream_id='late')")
    late.do("r.token('late ' * 100); r.drain(20, level='synced')")
    old.kill()
    late.kill()
    written = segment.read_bytes()
    shutil.copytree(old.data, following.data)
    found, *_ = following.segments()
    found.write_bytes(written[: before + 100])

    following.start()
    assert following.status()["start"]["torn"] == 1
    held = say(following, make_agent, "held")
    found, *_ = following.segments()
    assert written.startswith(found.read_bytes()), "as the next owner found it"
    found.write_bytes(written)
    held.kill()
    following.kill()
    for _ in range(2):
        assert following.cli("fsck", str(following.data)).returncode in (0, 1)
        following.start()
        goes_on(following)
        following.kill()
