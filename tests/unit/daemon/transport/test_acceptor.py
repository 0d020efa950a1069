"""The door: who is let in, who is told why not, and that it is never given up."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon import process_limits
from walld.daemon.transport import credentials
from walld.daemon.transport.acceptor import ACCEPTS_MAX
from walld.daemon.transport.listener import bind

START = wire.Start(1, 0, "r", "s")
PRODUCER = b"p" * 16


def test_one_uid_holds_at_most_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            share = int(20 * limits.PEERS_UID_SHARE_MAX)
            held = []
            for _ in range(share - 1):  # this process has a descriptor, too
                held.append(Peer(virtual))
                await anyio.sleep(0.01)
            with Peer(virtual) as refused:
                await anyio.sleep(0.5)
                (error,) = refused.heard()
                assert (error.code, error.got, error.limit) == (
                    "too_many_peers",
                    str(share),
                    str(share),
                )
                assert refused.ended
            held.pop().socket.close()
            await anyio.sleep(0.5)
            with Peer(virtual) as again:
                again.send(START)
                await again.drain()
            for peer in held:
                peer.socket.close()

    monkeypatch.setattr(process_limits, "peers_max", lambda: 20)
    run(main)


def test_a_uid_that_cannot_be_told_from_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                await anyio.sleep(0.5)
                (error,) = agent.heard()
                assert (error.code, error.got, agent.ended) == ("foreign_uid", "65534", True)

    nobody = credentials.PeerCredentials(os.getpid(), 65534, 65534)
    monkeypatch.setattr(credentials, "credentials", lambda _peer: nobody)
    run(main)


def test_who_waits_at_a_socket_that_is_replaced_is_let_in(tmp_path: Path) -> None:
    """They connected before its file went; more than are accepted in a turn."""

    async def main(stack: ExitStack) -> None:
        async with living(Home(tmp_path)) as virtual:
            peers = [stack.enter_context(Peer(virtual)) for _ in range(20)]
            os.unlink(virtual.home.socket_path)
            listener = stack.enter_context(bind(virtual.home.socket_path, 0o600, None))
            await virtual.daemon.acceptor.listen_at(listener, virtual._listener)
            assert virtual._listener.fileno() == -1
            peers.append(stack.enter_context(Peer(virtual)))
            for peer in peers:
                await peer.drain()

    with ExitStack() as stack:
        run(lambda: main(stack))


@pytest.fixture
def first_are_nobodies(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many that come first are refused: all that are accepted in a turn."""
    known, left = credentials.credentials, iter(range(ACCEPTS_MAX))

    def told(peer: socket.socket) -> credentials.PeerCredentials:
        who = known(peer)
        return who if next(left, None) is None else who._replace(uid=65534)

    monkeypatch.setattr(credentials, "credentials", told)
    return ACCEPTS_MAX


@pytest.mark.parametrize("by", ["a stop", "another listener"])
def test_who_waits_behind_those_that_are_refused_is_let_in(
    tmp_path: Path, first_are_nobodies: int, by: str
) -> None:
    """P1. Nobody was admitted of the first eight, which was taken for nobody being there."""
    home = Home(tmp_path)

    async def before(stack: ExitStack) -> None:
        async with living(home) as virtual:
            refused = [stack.enter_context(Peer(virtual)) for _ in range(first_are_nobodies)]
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"said"))
            acceptor = virtual.daemon.acceptor
            if by == "a stop":
                await acceptor.shut()
            else:
                os.unlink(home.socket_path)
                listener = stack.enter_context(bind(home.socket_path, 0o600, None))
                await acceptor.listen_at(listener, virtual._listener)
            assert [peer.heard()[0].code for peer in refused] == ["foreign_uid"] * len(refused)

    async def after() -> None:
        async with living(home) as virtual:
            assert text_of(await recovered(virtual, "r")) == b"said"

    with ExitStack() as stack:
        run(lambda: before(stack))
    run(after)


def test_without_descriptors_it_waits_and_goes_on(tmp_path: Path) -> None:
    class Exhausted(socket.socket):
        failures = 3

        def accept(self) -> tuple[socket.socket, str]:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "planted")
            return super().accept()

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            ((fd, listener),) = virtual.daemon.acceptor._listeners.items()
            planted = Exhausted(fileno=os.dup(listener.fileno()))
            planted.setblocking(False)
            virtual.daemon.acceptor._listeners[fd] = planted
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
            assert planted.failures == 0
            virtual.daemon.acceptor._listeners[fd] = listener
            planted.close()

    run(main)


def test_connections_of_a_producer_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said on each earlier one is read before a new one: 2,500 of them cost each sweep 6
    million looks, and a stop did not end within 20 s.
    """
    most = 3
    monkeypatch.setattr(limits, "CONNECTIONS_PER_PRODUCER_MAX", most)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with ExitStack() as held:
                peers = [held.enter_context(Peer(virtual, producer=PRODUCER)) for _ in range(most)]
                for peer in peers:
                    await peer.drain()
                with Peer(virtual, producer=PRODUCER) as further:
                    error = await further.hear(wire.Error)
                assert (error.code, error.got, error.limit) == ("too_many_peers", "3", "3")
                with Peer(virtual, producer=b"q" * 16) as other:
                    await other.drain()
                peers[0].socket.close()
                await until(lambda: len(virtual.daemon.connections) == most - 1)
                with Peer(virtual, producer=PRODUCER) as next_one:
                    await next_one.drain()

    run(main)


@pytest.mark.parametrize("waits", [True, False])
def test_while_an_agent_waits_a_crowd_comes_one_by_one_with_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """I5. An ack takes a dozen turns of the loop, and 8 of 20,000 connects came in each."""
    monkeypatch.setattr(limits, "ASKING_SLICE_SECONDS", 0.0)
    most = 40

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            connections, socket_reader = virtual.daemon.connections, virtual.daemon.socket_reader
            steps, let_in = [], socket_reader.let_in

            def counted(at_most: int = ACCEPTS_MAX) -> bool:
                before = connections.admitted
                fine = let_in(at_most)
                steps.append(connections.admitted - before)
                return fine

            with Peer(virtual) as agent, ExitStack() as held:
                agent.send(START)
                await agent.drain()
                if not waits:
                    await anyio.sleep(2 * limits.ASKED_SECONDS)
                monkeypatch.setattr(socket_reader, "let_in", counted)
                first, begun = connections.admitted, anyio.current_time()
                for _ in range(most):
                    held.enter_context(Peer(virtual))
                await until(lambda: connections.admitted == first + most)
                took = anyio.current_time() - begun
        assert max(steps) == (1 if waits else ACCEPTS_MAX)
        rests = took / limits.ASKING_REST_SECONDS
        assert rests > most / 2 if waits else rests < most / 2

    run(main)
