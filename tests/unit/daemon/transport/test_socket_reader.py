"""Sweeps, and the ends of processes: I1, I3, L1 and L2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import ValuesView
from pathlib import Path
from typing import Any

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.api.replies import ReplyRequests
from walld.engine.stream import Connection, Stream

START = wire.Start(1, 0, "r", "s")
ROOT = Path(__file__).parents[4]


def read_sizes(virtual: Virtual) -> list[tuple[int, int]]:
    """(connection, bytes) of each read that is taken from here on."""
    sizes: list[tuple[int, int]] = []
    take = virtual.engine.decoder.take

    def counted(connection: Connection, data: bytes, at_ms: int) -> None:
        sizes.append((connection.name, len(data)))
        take(connection, data, at_ms)

    virtual.engine.decoder.take = counted  # type: ignore[method-assign]
    return sizes


# --- fairness -----------------------------------------------------------------------------------


def test_a_sweep_reads_a_little_from_each(tmp_path: Path) -> None:
    """I1: who has much to say goes on in its turn."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as loud, Peer(virtual) as quiet:
                loud.send(START)
                quiet.send(wire.Start(1, 0, "q", "s"))
                await anyio.sleep(1)
                sizes = read_sizes(virtual)
                loud.send(*(wire.Token(1, seq, b"x" * 500) for seq in range(1, 200)))
                quiet.send(wire.Token(1, 1, b"hello"))
                await loud.drain()
                assert max(size for _, size in sizes) <= limits.READ_BYTES_MAX
                names = [name for name, _ in sizes]
                assert names.index(quiet_name := min(set(names), key=names.count)) <= 1
                assert names.count(quiet_name) == 1

    run(main)


def test_after_a_sweep_that_found_little_it_rests(tmp_path: Path) -> None:
    """I1: the kernel's buffers are the batch, so a trickle costs few sweeps."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await anyio.sleep(1)
                sizes = read_sizes(virtual)
                for seq in range(1, 1001):
                    agent.send(wire.Token(1, seq, b"x"))
                    await anyio.sleep(0.0001)
                await anyio.sleep(0.1)
                seconds = 1000 * 0.0001
                assert len(sizes) <= seconds / limits.REST_SECONDS_MIN + 2
                assert virtual.engine.registry.by_no[1].next_seq == 1001

    run(main)


def test_who_waits_ends_the_rest(tmp_path: Path) -> None:
    """A program reads its own writes: the request names what it has sent (Q1)."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                for seq in range(30):
                    agent.send(START if not seq else wire.Token(1, seq, b"x"))
                    seen = [wire.Seen(agent.producer, 1, seq)]
                    answer = await asked(virtual, wire.Recover(1, "all", None, "r", seen))
                    assert answer[0][13] == seq, "last_seq"

    run(main)


def test_who_waits_looks_when_something_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No clock wakes it, and it is answered in the moment that it can be."""
    looks = 0
    has_taken = ReplyRequests._has_taken

    def counted(replies: ReplyRequests, connection: Connection, seen: wire.Seen) -> bool:
        nonlocal looks
        looks += 1
        return has_taken(replies, connection, seen)

    monkeypatch.setattr(ReplyRequests, "_has_taken", counted)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent, Peer(virtual) as other, Peer(virtual, "query") as reader:
                seen = [wire.Seen(agent.producer, 1, 2)]
                reader.send(wire.Recover(1, "all", None, "r", seen))
                await anyio.sleep(1.2)
                assert looks <= 2
                other.send(wire.Start(1, 0, "q", "s"))
                await anyio.sleep(0.2)
                agent.send(START, wire.Token(1, 1, b"x"), wire.Token(1, 2, b"x"))
                begun = anyio.current_time()
                await reader.hear(wire.Answer)
                assert anyio.current_time() - begun < 2 * limits.SWEEP_SLICE_SECONDS
                assert looks <= 5

    run(main)


def test_what_was_refused_is_waited_for_by_nobody(tmp_path: Path) -> None:
    """It came, and will never be taken: a request that names it is answered at once."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.End(1, 1, clean=True), wire.Token(1, 2, b"late"))
                begun = anyio.current_time()
                seen = [wire.Seen(agent.producer, 1, 2)]
                answer = await asked(virtual, wire.Recover(1, "all", None, "r", seen))
                assert answer[0][13] == 1, "last_seq"
                assert anyio.current_time() - begun < 1

    run(main)


def test_a_stream_that_only_its_producer_holds_is_not_done_with(tmp_path: Path) -> None:
    """Q1: of a process that is not back yet the log may hold a stream with a higher number."""
    home, producer = Home(tmp_path), b"p" * 16

    async def before() -> None:
        async with living(home) as virtual:
            with Peer(virtual, producer=producer) as agent:
                agent.send(wire.Start(2, 0, "two", "s"), wire.Token(2, 1, b"x"))
                await agent.drain("synced")
            await virtual.crash()

    async def after() -> None:
        async with living(home) as virtual:
            with Peer(virtual, "query") as asking:
                seen = [wire.Seen(producer, 1, 0)]
                asking.send(wire.Recover(1, "all", None, "one", seen))
                assert (await asking.hear(wire.Error)).code == "behind"
                with Peer(virtual, producer=producer) as agent:
                    resumes = wire.Resume(wire.Start(1, 0, "one", "s"), 0, -1, 1, False)
                    agent.send(resumes)
                    asking.send(wire.Recover(2, "all", None, "one", seen))
                    assert (await asking.hear(wire.Answer)).id == 2

    run(before)
    run(after)


def test_who_drains_after_each_token_waits_for_no_rest(tmp_path: Path) -> None:
    """It was late by one each time: a drain took ten times as long as what it waited for."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
                begun = anyio.current_time()
                for seq in range(1, 101):
                    agent.send(wire.Token(1, seq, b"x"), wire.Drain(seq, "written"))
                    heard: list[object] = []
                    while not any(isinstance(one, wire.Drained) for one in heard):
                        await anyio.sleep(0.000_01)
                        heard = agent.heard()
                took = anyio.current_time() - begun
                assert took < 100 * limits.REST_SECONDS_MIN / 4

    run(main)


def test_a_full_queue_pauses_agents_and_nothing_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
                held = int(limits.QUEUE_BYTES_MAX * limits.QUEUE_HIGH_SHARE) + 1
                virtual.engine.batches.queue_bytes += held
                agent.send(wire.Token(1, 1, b"paused"))
                await anyio.sleep(10)
                stream = virtual.engine.registry.by_no[1]
                assert stream.next_seq == 1, "not read: it waits in the kernel, where it survives"
                assert (await asked(virtual, wire.Status(1)))["state"] == "ok"
                virtual.engine.batches.queue_bytes -= held
                await agent.drain()
                assert text_of(await recovered(virtual, "r")) == b"paused"

    run(main)


def test_a_full_queue_pauses_newcomers_too(tmp_path: Path) -> None:
    """The door reads a Hello and little more: what follows it waits as everybody's does."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            held = int(limits.QUEUE_BYTES_MAX * limits.QUEUE_HIGH_SHARE) + 1
            virtual.engine.batches.queue_bytes += held
            with Peer(virtual) as agent:
                agent.send(START, *(wire.Token(1, seq, b"x" * 1000) for seq in range(1, 21)))
                await anyio.sleep(10)
                taken = virtual.engine.batches.queue_bytes - held
                assert taken < 2 * limits.DOOR_READ_BYTES
                virtual.engine.batches.queue_bytes -= held
                await agent.drain()
                assert text_of(await recovered(virtual, "r")) == b"x" * 20_000

    run(main)


def test_many_drains_look_at_many_streams_once(tmp_path: Path) -> None:
    """4,000 drains of one with 80,000 streams held the loop for 10 s."""

    class Counted(dict[int, Stream]):
        looks = 0

        def values(self) -> ValuesView[Stream]:
            Counted.looks += 1
            return super().values()

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(*(wire.Start(number, 0, f"r{number}", "s") for number in range(1, 101)))
                await agent.drain()
                producer = virtual.engine.registry.producer(os.getuid(), agent.producer)
                producer.streams = Counted(producer.streams)
                agent.send(*(wire.Drain(number, "written") for number in range(1, 501)))
                for number in range(1, 501):
                    assert await agent.hear(wire.Drained) == wire.Drained(number, "written")
                assert Counted.looks <= 2

    run(main)


# --- the ends of processes ------------------------------------------------------------------------

CHILD = """
import os, socket, sys
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
def connect():
    made = socket.socket(socket.AF_UNIX)
    made.connect(sys.argv[1])
    made.setblocking(False)
    return made
agent = connect()
frames = [wire.Hello(1, "agent", b"c" * 16), wire.Start(1, 0, "child", "s")]
frames += [wire.Token(1, seq, b"%04d" % seq + b"x" * 96) for seq in range(1, 501)]
assert agent.send(b"".join(map(encode, frames))) > 50_000
"""


def child(virtual: Virtual, more: str) -> subprocess.Popen[bytes]:
    """A process that has sent 500 tokens, then does `more`; the daemon has seen nothing of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD + more, virtual.home.socket_path],
        env=os.environ | {"PYTHONPATH": str(ROOT / "clients" / "python")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def bury(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()


READY = "print('ready', flush=True); sys.stdin.read()"
ENDS: dict[str, str] = {
    "killed": READY,
    "with a connection that said nothing": "other = connect();" + READY,
    "with several": (
        "others = [connect() for _ in range(40)];"
        "[o.send(encode(wire.Hello(1, 'agent', b'c' * 16))) for o in others[::2]];" + READY
    ),
    # The child of a fork holds the socket open: there is no EOF, only the kernel's word.
    "after a fork": (
        "child = os.fork();\n"
        "if not child:\n    os.read(0, 1); os._exit(0)\n"
        "print('ready', flush=True); sys.stdin.read()"
    ),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("known", [False, True])
def test_a_dead_process_is_read_to_the_end_and_then_lost(
    tmp_path: Path, end: str, known: bool
) -> None:
    """I3: SIGKILL; what the kernel had taken is all there, and it is an orphan at once."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            process = child(virtual, ENDS[end])
            if known:
                await until(lambda: virtual.engine.registry.by_no)
                await anyio.sleep(0.01)
            bury(process)
            await until(virtual.engine.partials.all_names, 5)
            reply = await recovered(virtual, "child")
            assert reply is not None
            assert (reply.status, reply.owner_alive, reply.lost_reason) == (
                "crashed",
                False,
                "agent_lost",
            )
            assert (reply.last_seq, reply.gaps) == (500, [])

    run(main)


def test_what_the_dead_left_waits_in_the_kernel_while_the_queue_is_full(tmp_path: Path) -> None:
    """I3, P10: it was read whatever the queue held, +108 MB by children that speak and go.

    And what is not read is not "nothing": whoever asks is told to ask again (Q1).
    """

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            held = int(limits.QUEUE_BYTES_MAX * limits.QUEUE_HIGH_SHARE) + 1
            virtual.engine.batches.queue_bytes += held
            process = child(virtual, READY)
            bury(process)
            await anyio.sleep(10)
            assert virtual.engine.batches.queue_bytes - held < 2 * limits.DOOR_READ_BYTES
            with Peer(virtual, "query") as asking:
                asking.send(wire.Recover(1, "orphans"))
                assert (await asking.hear(wire.Error)).code == "behind"
            virtual.engine.batches.queue_bytes -= held
            await until(virtual.engine.partials.all_names, 5)
            reply = await recovered(virtual, "child")
            assert reply is not None
            assert (reply.status, reply.last_seq, reply.gaps) == ("crashed", 500, [])

    run(main)


def test_what_the_dead_left_is_read_in_parts_while_somebody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two flushes all of them together give one part; in the end all of it comes back."""
    part = 8 * limits.KIB  # a child leaves seven of them
    monkeypatch.setattr(limits, "PARTS_BYTES", part)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
                virtual.worker.seconds = 0.1
                bury(child(virtual, READY))
                gave = []
                for seq in range(1, 12):
                    taken = virtual.engine.counters.received_bytes
                    agent.send(wire.Token(1, seq, b"honest"))
                    await agent.drain()
                    gave.append(virtual.engine.counters.received_bytes - taken)
                # A drain waits for the flush under way and its own.
                assert max(gave) <= 2 * (part + limits.BUSY_READ_BYTES + limits.LITTLE_BYTES)
                assert len([count for count in gave if count > part // 2]) >= 3
                virtual.worker.seconds = 0.0
                await until(virtual.engine.partials.all_names, 60)
                reply = await recovered(virtual, "child")
                assert reply is not None
                assert (reply.status, reply.last_seq, reply.gaps) == ("crashed", 500, [])

    run(main)


def test_once_the_dead_of_a_user_gave_their_part_the_rest_of_them_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3. There were thousands, and each was tried, and held again, for each flush.

    Once for each sweep and flush one of them is, whichever it is.
    """
    monkeypatch.setattr(limits, "PARTS_BYTES", 8 * limits.KIB)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
                queue, refused = virtual.daemon.fair_queue, [0]
                exited_peers = virtual.daemon.socket_reader.exited_peers
                turn_bytes, see_off = queue.turn_bytes, exited_peers.see_off

                def counted(peer: Any) -> int:
                    count = turn_bytes(peer)
                    refused[-1] += not count
                    return count

                async def end_of_sweep() -> None:
                    await see_off()
                    refused.append(0)

                monkeypatch.setattr(queue, "turn_bytes", counted)
                monkeypatch.setattr(exited_peers, "see_off", end_of_sweep)
                virtual.worker.seconds = 0.1
                for process in [child(virtual, READY) for _ in range(6)]:
                    bury(process)
                for seq in range(1, 12):
                    agent.send(wire.Token(1, seq, b"honest"))
                    await agent.drain()
                assert max(refused) == 1
                virtual.worker.seconds = 0.0
                await until(lambda: len(virtual.engine.partials.all_names()) == 1, 60)

    run(main)


def test_what_a_dead_agent_left_is_read_also_by_the_next_daemon(tmp_path: Path) -> None:
    """Its socket lies in the backlog while no daemon runs; the log is read before it is judged."""

    async def main() -> None:
        home = Home(tmp_path)
        made: list[subprocess.Popen[bytes]] = []

        def early(virtual: Virtual) -> None:
            made.append(child(virtual, READY))
            bury(made[0])

        async with living(home, before=early) as virtual:
            await until(virtual.engine.partials.all_names, 5)
            reply = await recovered(virtual, "child")
            assert reply is not None
            assert (reply.status, reply.last_seq) == ("crashed", 500)

    run(main)


def test_an_agent_of_two_connections_is_one_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as first:
                first.send(START)
                await first.drain()
                with Peer(virtual, producer=first.producer) as second:
                    second.send(wire.Start(2, 0, "q", "s"))
                    await second.drain()
                    (process,) = {c.process for c in virtual.daemon.connections.by_connection}
                    assert len(process.connections) == 2
                    assert sorted(process.streams) == [1, 2]
                await anyio.sleep(3)
                assert len(process.connections) == 1
                assert {s.lost_reason for s in virtual.engine.registry.by_no.values()} == {None}

    run(main)


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as first:
                first.send(START)
                await first.drain()
                before = descriptors()
                for number in range(20):
                    with Peer(virtual) as agent:
                        agent.send(wire.Start(1, 0, f"q{number}", "s"))
                        agent.send(wire.End(1, 1, clean=True), wire.Release(1, 2))
                        await agent.drain()
                    await asked(virtual, wire.Status(1))
                    bury(child(virtual, READY))
                    await anyio.sleep(2)
                assert descriptors() <= before + 1  # a segment may have been rolled

    run(main)
