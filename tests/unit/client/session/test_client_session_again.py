"""A session's requests when a connection dies, and from many threads. Both colours, one script."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import walld_client
from colours import Coloured, connect
from fake_daemon import FakeDaemon, Peer
from fake_ledger import FakeLedger
from walld_client.wire import messages as wire


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    yield client
    client.let_go()


def dies_once_after_taking(ledger: FakeLedger) -> None:
    """The first append is taken, and the connection ends before its answer."""
    left = [1]

    def before(peer: Peer, request: Any) -> bool:
        if isinstance(request, wire.Append) and left:
            left.pop()
            ledger._append(request)
            peer.socket.shutdown(2)
            return True
        return False

    ledger.before = before


def test_an_answer_that_was_lost_adds_once(client: Coloured, ledger: FakeLedger) -> None:
    dies_once_after_taking(ledger)
    entry = client.session("S").append("a")
    assert (entry.seq, entry.is_new) == (1, False)
    assert ledger.types("S") == ["a"]


def test_an_answer_that_was_lost_puts_a_piece_once(client: Coloured, ledger: FakeLedger) -> None:
    left = [False, True, False]

    def before(peer: Peer, request: Any) -> bool:
        if isinstance(request, wire.PutArtifact) and left and left.pop():
            ledger._putartifact(request)
            peer.socket.shutdown(2)
            return True
        return False

    ledger.before = before
    session = client.session("S")
    kept = session.artifact(b"x" * 3_000_000)
    assert session.read_artifact(kept.sha256) == b"x" * 3_000_000


@pytest.mark.parametrize("given", [{"id": "mine"}, {"key": "k"}, {"expected_seq": 0}])
def test_what_cannot_be_asked_twice_is_not(
    client: Coloured, ledger: FakeLedger, given: dict[str, Any]
) -> None:
    dies_once_after_taking(ledger)
    session = client.session("S")
    with pytest.raises(walld_client.Unavailable, match="whether it did what was asked"):
        session.append("a", **given)
    assert session.append("b").seq == 2, "the next call has a connection of its own"


def test_a_daemon_that_went_while_nobody_asked_costs_nothing(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    session = client.session("S")
    session.append("a")
    daemon.peers[0].socket.shutdown(2)
    daemon.until(lambda: daemon.peers[0].ended)
    assert session.append("b", id="mine").seq == 2


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    client = walld_client.connect(tmp_path / "nobody")
    with pytest.raises(walld_client.Unavailable, match="no walld at"):
        client.session("S").append("a")
    client.close(0.0)


def test_threads_do_not_wait_for_each_other(path: str, ledger: FakeLedger) -> None:
    together = threading.Barrier(8, timeout=10)

    def before(peer: Peer, request: Any) -> bool:
        together.wait()  # no answer before all eight have asked
        return False

    ledger.before = before
    client = walld_client.connect(path)
    seqs: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: seqs.append(client.session(f"S{n}").append("a").seq))  # type: ignore[misc]
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seqs == [1] * 8
    client.close()


def test_a_call_of_one_thread_uses_one_connection(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    session = client.session("S")
    for _ in range(5):
        session.append("a")
        client.sessions()
    assert len(daemon.peers) == 1
