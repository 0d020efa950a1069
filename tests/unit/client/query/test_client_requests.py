"""Requests: what is asked, what comes back, what it raises. Both colours, one script."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import walld_client
import walld_client.aio
from fake_daemon import FakeDaemon, Peer
from walld_client.limits import BACKOFF_SECONDS_MIN
from walld_client.query import query
from walld_client.wire import framing
from walld_client.wire import messages as wire


def recovered(stream_id: str = "r", **fields: Any) -> wire.Recovered:
    empty = wire.Recovered(
        stream_id=stream_id,
        session_id="S",
        uid=0,
        turn_id=None,
        parent=None,
        meta=None,
        status="crashed",
        owner_alive=False,
        lost_reason=None,
        error=None,
        finish_reason=None,
        started_at_ms=0,
        last_event_at_ms=0,
        last_seq=1,
        gaps=[],
        attempts=1,
        events=1,
        partial=True,
        partial_reason="heuristic",
        segments=[wire.RecoveredSegment("text", 0, 0, 1, 1, 0, b"hello")],
    )
    return msgspec.structs.replace(empty, **fields)


class Asker:
    """A client of either colour, called as if it blocked."""

    def __init__(self, colour: str, path: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop() if colour == "aio" else None
        module = walld_client.aio if colour == "aio" else walld_client
        self.client = module.connect(path, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*given: Any, **named: Any) -> Any:
            if inspect.iscoroutinefunction(method):
                assert self.loop is not None
                return self.loop.run_until_complete(method(*given, **named))
            return method(*given, **named)

        return call

    def finish(self) -> None:
        self.close(0.0)
        if self.loop is not None:
            self.loop.close()


@pytest.fixture(params=["sync", "aio"])
def asker(request: pytest.FixtureRequest, path: str) -> Iterator[Asker]:
    asker = Asker(request.param, path, timeout=20.0)
    yield asker
    asker.finish()


def test_recover_and_its_kin(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers([recovered("a"), recovered("b")])
    reply = asker.recover("S")
    assert (reply.stream_id, reply.text, reply.status) == ("b", "hello", "crashed")
    assert asker.recover(stream_id="b").stream_id == "b"
    assert [one.stream_id for one in asker.recover_all()] == ["a", "b"]
    assert [one.stream_id for one in asker.orphans("S")] == ["a", "b"]
    assert daemon.requests() == [
        wire.Recover(1, "latest", "S", None),
        wire.Recover(2, "latest", None, "b"),
        wire.Recover(3, "all"),
        wire.Recover(4, "orphans", "S"),
    ]
    assert len(daemon.peers) == 1


def test_nothing_there(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers([])
    assert asker.recover("S") is None
    assert asker.recover_all() == []


def test_has_partial_and_resolve(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers(True)
    assert asker.has_partial("S") is True
    assert asker.resolve("r", 8) is True
    daemon.answers(False)
    assert asker.has_partial("S") is False
    assert asker.resolve("r") is False
    assert daemon.requests() == [
        wire.HasPartial(1, "S"),
        wire.Resolve(2, "r", 8),
        wire.HasPartial(3, "S"),
        wire.Resolve(4, "r"),
    ]


def test_an_answer_in_pieces_is_one(daemon: FakeDaemon, asker: Asker) -> None:
    encoded = msgspec.msgpack.encode(
        [recovered(segments=[wire.RecoveredSegment("text", 0, 0, 1, 1, 0, b"x" * 700_000)])]
    )

    def answer(peer: Peer, request: Any) -> None:
        peer.say(wire.Answer(request.id + 7, b"\xc3"))  # somebody else's: passed over
        for at in range(0, len(encoded), 100_000):
            last = at + 100_000 >= len(encoded)
            frame = framing.encode(wire.Answer(request.id, encoded[at : at + 100_000], last))
            for byte in (frame[:3], frame[3:50_000], frame[50_000:]):
                peer.socket.sendall(byte)

    daemon.answer = answer
    assert len(asker.recover("S").text) == 700_000


def test_the_process_says_how_far_it_has_sent(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers([])
    one, two, other = asker.reply("S"), asker.reply("S", stream_id="two"), asker.reply("T")
    one.token("x")
    two.token("y")
    two.token("y")
    other.move("S")
    asker.recover("S")
    asker.recover(stream_id="two")
    asker.has_partial("T")
    asker.recover_all()
    seen = [
        [(s.stream, s.seq) for s in r.seen]
        for r in daemon.requests()
        if not isinstance(r, wire.Drain)
    ]
    assert [sorted(s) for s in seen] == [
        [(1, 1), (2, 2), (3, 1)],
        [(2, 2)],
        [],
        [(1, 1), (2, 2), (3, 1)],
    ]


def test_refused_is_an_answer_and_the_connection_goes_on(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answer = lambda peer, request: peer.say(
        wire.Error("refused", "it grew", "12", "8", request.id)
    )
    with pytest.raises(walld_client.Refused) as caught:
        asker.resolve("r", 8)
    assert (caught.value.code, caught.value.got, caught.value.limit) == ("refused", "12", "8")
    daemon.answers(True)
    assert asker.resolve("r", 12)
    assert len(daemon.peers) == 1


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_a_daemon_that_is_recovering_cannot_know(
    daemon: FakeDaemon, path: str, colour: str
) -> None:
    daemon.answer = lambda peer, request: peer.say(wire.Error("recovering", "wait", id=request.id))
    asker = Asker(colour, path, timeout=0.2)
    with pytest.raises(walld_client.Unavailable, match="cannot know now"):
        asker.recover("S")
    assert asker.has_partial("S") is None
    asker.finish()


def test_a_daemon_that_is_recovering_is_asked_until_the_time_is_over(
    daemon: FakeDaemon, asker: Asker
) -> None:
    """It says so after 1.5 s, whatever time its asker has."""
    left = [3]

    def answer(peer: Peer, request: Any) -> None:
        left[0] -= 1
        if left[0]:
            peer.say(wire.Error("recovering", "wait", id=request.id))
        else:
            peer.say(wire.Answer(request.id, msgspec.msgpack.encode(True)))

    daemon.answer = answer
    assert asker.resolve("r", 8)
    assert (left, len(daemon.peers)) == ([0], 1)


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_who_has_no_time_left_is_told_that_it_is_recovering(
    daemon: FakeDaemon, path: str, colour: str
) -> None:
    said = []

    def answer(peer: Peer, request: Any) -> None:
        if not said:
            peer.say(wire.Error("recovering", "wait", id=request.id))
        said.append(request)

    daemon.answer = answer
    asker = Asker(colour, path, timeout=0.5)
    with pytest.raises(walld_client.Unavailable, match="cannot know now: wait"):
        asker.recover("S")
    assert len(said) == 2
    asker.finish()


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_who_has_no_time_for_another_answer_asks_no_more(
    daemon: FakeDaemon, path: str, colour: str
) -> None:
    """The pause would fit, and an answer hardly."""
    daemon.answer = lambda peer, request: peer.say(wire.Error("recovering", "wait", id=request.id))
    asker = Asker(colour, path, timeout=1.9 * BACKOFF_SECONDS_MIN)
    with pytest.raises(walld_client.Unavailable):  # on a busy machine: no answer at all in time
        asker.recover("S")
    assert len(daemon.requests()) <= 1
    asker.finish()


def test_who_hears_too_late_that_it_recovers_is_told_what_it_heard_before(
    daemon: FakeDaemon, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(query, "time", clock)
    asked: list[Any] = []

    def answer(peer: Peer, request: Any) -> None:
        asked.append(request)
        clock.now += 6.0
        peer.say(wire.Error("recovering", "wait", id=request.id))

    daemon.answer = answer
    asker = Asker("sync", path, timeout=10.0)
    with pytest.raises(walld_client.Unavailable, match="cannot know now: wait"):
        asker.recover("S")
    assert len(asked) == 2
    asker.finish()


def test_an_error_behind_chunks_ends_the_answer_and_its_chunks_are_void(
    daemon: FakeDaemon, asker: Asker
) -> None:
    """A long answer is made while it is sent: its session may be deleted meanwhile."""

    def fail(peer: Peer, request: Any) -> None:
        peer.say(wire.Answer(request.id, b"\x92the beginning", False))
        peer.say(wire.Error("behind", "ask again", id=request.id))

    daemon.answer = fail
    with pytest.raises(walld_client.Unavailable, match="cannot know now: ask again"):
        asker.recover("S")
    daemon.answer = lambda peer, request: peer.say(wire.Answer(request.id, b"\x90", True))
    assert asker.recover("S") is None


class FakeClock:
    """The module `time` of a query connection, moved by a test."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_who_waits_too_long_is_told_of_the_time_that_was_given(
    daemon: FakeDaemon, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where most of it was the connection's."""
    clock = FakeClock()
    monkeypatch.setattr(query, "time", clock)

    def locate() -> str:
        clock.now += 4.95
        return path

    asker = query.Query(locate, timeout=5.0)
    with pytest.raises(walld_client.Unavailable, match=r"^no answer from walld within 5 s"):
        asker.ask(wire.Status)
    asker.close()


def test_who_waited_for_others_before_is_told_of_the_time_that_was_given(
    daemon: FakeDaemon, path: str
) -> None:
    late: list[Any] = []

    def answer(peer: Peer, request: Any) -> None:
        if late:
            return  # never
        late.append(request)
        time.sleep(0.3)
        peer.say(wire.Answer(request.id, msgspec.msgpack.encode([])))

    async def both() -> list[Any]:
        asks = (client.recover("first"), client.recover("second"))
        return await asyncio.gather(*asks, return_exceptions=True)

    daemon.answer = answer
    client = walld_client.aio.connect(path, timeout=0.5)
    *_, second = asyncio.run(both())
    assert "no answer from walld within 0.5 s" in str(second)


def test_a_closing_error_cannot_know(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.welcome = wire.Error("version", "another version", "1", "2")  # type: ignore[assignment]
    with pytest.raises(walld_client.Unavailable, match="code version, got 1, limit 2"):
        asker.recover("S")


def test_an_answer_that_is_none_cannot_know(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers({"not": "a list"})
    with pytest.raises(walld_client.Unavailable, match="cannot read"):
        asker.recover("S")
    daemon.answer = lambda peer, request: peer.socket.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(walld_client.Unavailable, match="cannot read"):
        asker.recover("S")
    daemon.answers([])
    assert asker.recover("S") is None


def test_no_answer_in_time(daemon: FakeDaemon, path: str) -> None:
    for colour in ("sync", "aio"):
        asker = Asker(colour, path, timeout=0.05)
        with pytest.raises(walld_client.Unavailable, match="no answer"):
            asker.recover("S")
        daemon.answer = lambda peer, request: None
        asker.finish()


def test_a_late_answer_is_not_taken_for_the_next(daemon: FakeDaemon, path: str) -> None:
    for colour in ("sync", "aio"):
        late = threading.Event()
        asker = Asker(colour, path, timeout=0.1)
        daemon.answer = lambda peer, request, late=late: (
            late.wait(10)
            and peer.say(  # type: ignore[misc]
                wire.Answer(request.id, b"\xc3")
            )
        )
        assert asker.has_partial("S") is None
        (asker.client._query if colour == "sync" else asker.client._pool)._timeout = 20.0
        daemon.answers(False)
        assert asker.has_partial("S") is False
        late.set()
        assert asker.has_partial("S") is False
        asker.finish()


def test_a_stale_connection_is_made_anew(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers([])
    assert asker.recover("S") is None
    daemon.stop()
    daemon.start()
    assert asker.recover("S") is None
    assert len(daemon.peers) == 2


def test_a_daemon_that_hangs_up_on_a_request_is_asked_once_more_only(
    daemon: FakeDaemon, asker: Asker
) -> None:
    daemon.answers([])
    assert asker.recover("S") is None

    def hang_up(peer: Peer, request: Any) -> None:
        peer.socket.shutdown(2)

    daemon.answer = hang_up
    with pytest.raises(walld_client.Unavailable, match="closed the connection"):
        asker.recover("S")
    assert len(daemon.requests()) == 3


def test_a_daemon_that_was_there_is_waited_for(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers([])
    assert asker.recover("S") is None
    daemon.stop()
    threading.Timer(0.2, daemon.start).start()
    assert asker.recover("S") is None


def test_mistakes_are_named_before_anything_is_asked(daemon: FakeDaemon, asker: Asker) -> None:
    with pytest.raises(ValueError, match="needs a session_id or a stream_id"):
        asker.recover()
    with pytest.raises(ValueError, match="session_id"):
        asker.has_partial("")
    with pytest.raises(ValueError, match="stream_id"):
        asker.resolve("x" * 2000)
    assert daemon.peers == []


def test_ids_that_are_no_paths_are_harmless(daemon: FakeDaemon, asker: Asker) -> None:
    daemon.answers(False)
    for odd in (".", "..", "a/b", "\0"):
        assert asker.has_partial(odd) is False


def test_threads_share_one_connection(daemon: FakeDaemon, path: str) -> None:
    daemon.answers([])
    client = walld_client.connect(path)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(50):
                assert client.recover("S") is None
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(daemon.peers) == 1
    client.close()
