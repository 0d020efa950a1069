"""DeleteAt: a delete of what the asker has seen all of, beside those who go on with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess, until
from walld_client.errors import Refused
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.session_client import SessionClient

ROUNDS = 40


@pytest.fixture
def asking(daemon: DaemonProcess) -> Iterator[SessionClient]:
    with Daemon(daemon.socket_path, 60) as asked:
        yield SessionClient(asked, None)


def delete_at(asking: SessionClient, last_seq: int, session_id: str = "s") -> bytes:
    return asking.ask(lambda number: wire.DeleteAt(number, session_id, last_seq))


def test_only_what_ends_where_it_was_seen_to_end_goes(
    daemon: DaemonProcess, asking: SessionClient
) -> None:
    session = daemon.reader.session("s")
    session.append_many([{"type": "app.note", "payload": {}}] * 3)
    before = session.events()
    for seen in (0, 2, 4):
        with pytest.raises(Refused) as refused:
            delete_at(asking, seen)
        told = refused.value
        assert (told.code, told.got, told.limit) == ("stale", str(seen), "3")
    assert session.events() == before
    daemon.restart()
    with Daemon(daemon.socket_path, 60) as asked:
        anew = SessionClient(asked, None)
        with pytest.raises(Refused):
            delete_at(anew, 2)
        assert session.events() == before
        assert delete_at(anew, 3) == b"\xc3"
        with pytest.raises(Refused) as refused:
            delete_at(anew, 3)
    assert (refused.value.code, refused.value.limit) == ("stale", "0")
    assert session.messages() is None


def refuses(asking: SessionClient) -> None:
    with pytest.raises(Refused) as refused:
        delete_at(asking, 1)
    assert (refused.value.code, refused.value.got) == ("unreleased", "s")


def test_what_was_said_and_is_not_released_keeps_its_session(
    daemon: DaemonProcess, asking: SessionClient, reader: Any
) -> None:
    session = reader.session("s")
    session.append("app.note", {})
    reply = reader.reply("s", auto_release=False)
    reply.token("half a word")
    daemon.arrived(reply.stream_id, 1)
    refuses(asking)
    reply.end()

    def has_ended() -> bool:
        found = daemon.reader.recover("s")
        return found is not None and found.status == "complete"

    until(has_ended, "its end")
    refuses(asking)
    reply.release()
    until(lambda: not daemon.reader.has_partial("s"), "a release")
    assert delete_at(asking, 1) == b"\xc3"
    assert session.messages() is None


def test_nothing_that_was_acknowledged_goes_unseen(
    daemon: DaemonProcess, asking: SessionClient
) -> None:
    """Each life of the session ends at the seq that the delete named."""
    told: list[int] = []
    deleted = threading.Event()

    def write() -> None:
        with closing(walld_client.connect(daemon.socket_path, timeout=60)) as client:
            session = client.session("s")
            for count in Random(7).choices(range(1, 7), k=ROUNDS):
                told.extend(session.append("app.note", {}).seq for _ in range(count))
                deleted.wait()
                deleted.clear()

    writer = threading.Thread(target=write)
    writer.start()
    ends, seen = list[int](), 0
    while writer.is_alive():
        try:
            delete_at(asking, seen)
        except Refused as refused:
            if refused.code != "stale":
                raise
            seen = int(refused.limit)
            continue
        if seen:
            ends.append(seen)
            deleted.set()
        seen = 0
    writer.join()
    assert len(ends) >= ROUNDS
    if not asking.is_there("s"):
        told.append(1)
    assert [end for end, following in pairwise(told) if following == 1] == ends
