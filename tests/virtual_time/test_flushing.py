"""Linger, bound, syncs and acks, in virtual time: no test waits for a clock."""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld import limits

LINGER = limits.LINGER_MS_MAX / 1000
TINY = 0.000_5
START = wire.Start(1, 0, "r", "s")


def test_an_event_lingers_and_no_longer_than_that(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            await anyio.sleep(60)
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"lingering"))
                # After a silence it may have lain unread for one rest, which counts as its age.
                await anyio.sleep(LINGER - limits.REST_SECONDS_MAX - TINY)
                assert home.holds(b"lingering") == []
                await anyio.sleep(limits.REST_SECONDS_MAX + 2 * TINY)
                assert len(home.holds(b"lingering")) == 1

    run(main)


@pytest.mark.parametrize(("linger", "least"), [("1000", 0.9), ("0", 0.0)])
def test_a_fixed_linger_is_kept(tmp_path: Path, linger: str, least: float) -> None:
    async def main() -> None:
        home = Home(tmp_path, flush_linger_ms=linger)
        async with living(home) as virtual:
            await anyio.sleep(60)
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"lingering"))
                if least:
                    await anyio.sleep(least - TINY)
                    assert home.holds(b"lingering") == []
                await anyio.sleep(float(linger) / 1000 - least + 2 * limits.REST_SECONDS_MIN)
                assert len(home.holds(b"lingering")) == 1

    run(main)


def test_tokens_at_sixty_a_second_are_written_four_times_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 60 * 20 + 1):
                    agent.send(wire.Token(1, seq, b"token"))
                    await anyio.sleep(1 / 60)
                await anyio.sleep(LINGER)
                stream = next(iter(virtual.engine.registry.by_no.values()))
                assert stream.written_seq == 1200
                assert 60 <= stream.records <= 20 / (LINGER - limits.REST_SECONDS_MAX)
                assert virtual.engine.agent_bytes / 1200 < 10, "bytes a token (records alone)"

    run(main)


def test_who_waits_does_not_linger(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            await anyio.sleep(60)
            with Peer(virtual) as agent:
                begun = anyio.current_time()
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain("written")
                written = anyio.current_time() - begun
                agent.send(wire.Token(1, 2, b"b"))
                await agent.drain("synced")
                synced = anyio.current_time() - begun
                assert written < 0.01
                assert synced < 0.02

    run(main)


def test_a_slow_disk_lengthens_the_linger_and_the_bound_holds(tmp_path: Path) -> None:
    """A write takes 100 ms: 20 times that is more than half the bound, which is where it stops."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            virtual.worker.seconds = virtual.faults.write_seconds = 0.1
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 600):
                    agent.send(wire.Token(1, seq, b"x"))
                    await anyio.sleep(1 / 20)
                assert virtual.engine.schedule.linger == 1.5
                assert 1.5 <= virtual.lag_max() <= 2.0
                virtual.worker.seconds = 0.0

    run(main)


def test_a_fixed_linger_that_does_not_fit_is_shortened(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path, flush_linger_ms="3000")) as virtual:
            virtual.worker.seconds = 0.5
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 200):
                    agent.send(wire.Token(1, seq, b"x"))
                    await anyio.sleep(0.1)
                    if seq == 60:  # the first flush could not know
                        first = virtual.lag_max()
                assert virtual.engine.schedule.linger_shortened
                assert first <= 3.5
                buckets = {
                    sample.labels["le"]: sample.value
                    for metric in virtual.daemon.metrics.flush_lag.collect()
                    for sample in metric.samples
                    if sample.name.endswith("_bucket")
                }
                assert buckets["+Inf"] - buckets["3.0"] <= 1, "one breach: before it was known"
                virtual.worker.seconds = 0.0

    run(main)


def test_a_breached_bound_is_an_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain("synced")
                virtual.worker.seconds = 10.0
                agent.send(wire.Token(1, 1, b"x"))
                await anyio.sleep(5.0)
                assert virtual.daemon.status.trouble is not None, "said while it hangs, not after"
                assert virtual.daemon.status.word == "degraded"
                await anyio.sleep(10.0)
                assert virtual.daemon.status.trouble is None
                assert virtual.lag_max() > 3.0
                virtual.worker.seconds = 0.0

    with caplog.at_level(logging.ERROR, logger="walld"):
        run(main)
    assert [r for r in caplog.records if "flush bound breached" in r.getMessage()]


def test_written_flows_while_a_sync_hangs(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            virtual.syncer.seconds = 20.0
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 100):
                    agent.send(wire.Token(1, seq, b"x"))
                    await anyio.sleep(0.1)
                stream = virtual.engine.registry.by_no[1]
                assert stream.written_seq > 90
                assert stream.synced_seq <= 0
                assert virtual.lag_max() <= 0.4
                assert virtual.daemon.status.word == "degraded"
                virtual.syncer.seconds = 0.0

    run(main)


def test_synced_comes_within_a_second_and_acks_are_few(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                acks: list[wire.Ack] = []
                for seq in range(1, 20 * 30 + 1):
                    agent.send(wire.Token(1, seq, b"x"))
                    await anyio.sleep(0.05)
                    acks += [m for m in agent.heard() if isinstance(m, wire.Ack)]
                    synced = acks[-1].streams[0][2] if acks else 0
                    # linger + sync period + ack period, in tokens of 50 ms
                    assert seq - synced <= (LINGER + 1.0 + limits.ACK_PERIOD_SECONDS) / 0.05 + 2
                assert 25 <= len(acks) <= 35, "about one a second"
                seqs = [ack.streams[0][1:] for ack in acks]
                assert seqs == sorted(seqs)
                assert all(written >= synced for written, synced in seqs)

    run(main)


def test_nobody_is_told_that_a_batch_is_synced_before_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            virtual.syncer.seconds = 2.0
            with Peer(virtual) as agent:
                agent.send(START)
                agent.send(wire.Drain(1, "synced"))
                await anyio.sleep(1.9)
                assert agent.heard() == []
                drained = await agent.hear(wire.Drained)
                assert drained.level == "synced"
                virtual.syncer.seconds = 0.0

    run(main)


@pytest.mark.parametrize("seconds", [0.7, 1.0, 2.345, 11.1])
def test_both_killed_lose_no_more_than_lingers(tmp_path: Path, seconds: float) -> None:
    """P3: the daemon is gone between two steps, the agent does not come back."""

    async def main() -> None:
        home = Home(tmp_path)
        sent = 0
        with_peer = None
        async with living(home) as virtual:
            with_peer = Peer(virtual)
            with_peer.send(START)
            until = anyio.current_time() + seconds
            while anyio.current_time() < until:
                sent += 1
                with_peer.send(wire.Token(1, sent, b"%04d" % sent))
                await anyio.sleep(1 / 60)
            await virtual.crash()
        with_peer.socket.close()
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None
            assert sent - reply.last_seq <= LINGER * 60 + 1
            assert text_of(reply) == b"".join(b"%04d" % n for n in range(1, reply.last_seq + 1))

    run(main)


def test_sigterm_leaves_nothing_unwritten(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *(wire.Token(1, seq, b"%04d" % seq) for seq in range(1, 500)))
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None
            assert reply.last_seq == 499
            assert text_of(reply) == b"".join(b"%04d" % n for n in range(1, 500))

    run(main)


def test_segments_roll_by_age(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 9):
                    agent.send(wire.Token(1, seq, b"x"))
                    await anyio.sleep(limits.SEGMENT_SECONDS_MAX / 2 + 1)
                ages = [segment.created_at for segment in virtual.engine.segments]
                assert len(ages) >= 3
                assert all(b - a > limits.SEGMENT_SECONDS_MAX for a, b in pairwise(ages))

    run(main)


def test_what_jumps_the_queue_takes_nobodys_place_in_a_flush(tmp_path: Path) -> None:
    """A tombstone is sealed first: whoever waited before it came must not be left out for it."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with (
                Peer(virtual) as first,
                Peer(virtual) as waits,
                Peer(virtual) as a,
                Peer(virtual) as b,
            ):
                first.send(wire.Start(1, 0, "first", "s"), wire.Token(1, 1, b"x"))
                await first.drain("synced")
                virtual.worker.seconds = 1.0
                waits.send(wire.Start(1, 0, "waits", "s"), wire.Drain(1, "written"))
                await anyio.sleep(0.1)  # that flush takes a second: the next one holds the rest
                for long in (a, b):
                    long.send(wire.Start(1, 0, "a" if long is a else "b", "s"))
                    for begin in range(1, 200, 40):
                        said = [wire.Token(1, at, b"y" * 1000) for at in range(begin, begin + 40)]
                        long.send(*said)
                        await anyio.sleep(0.05)
                waits.send(wire.Token(1, 1, b"z"), wire.Drain(2, "written"))
                await anyio.sleep(1.0)  # the first of its two batches is on its way
                first.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                while (await waits.hear(wire.Drained)).id != 2:
                    pass
                stream = virtual.engine.registry.by_key[os.getuid(), "waits"]
                assert stream.written_seq == 1

    run(main)


@pytest.mark.parametrize("bound", ["20", "50", "100"])
def test_a_lone_event_after_a_silence_is_no_breach_of_a_short_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bound: str
) -> None:
    """It was taken for one that had lain unread for 100 ms, whatever the bound."""

    async def main() -> None:
        async with living(Home(tmp_path, flush_bound_ms=bound)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                for seq in range(1, 8):
                    await anyio.sleep(0.5)
                    agent.send(wire.Token(1, seq, b"x"))
                    await agent.drain()

    run(main)
    assert [r for r in caplog.records if "flush bound breached" in r.getMessage()] == []


def test_who_waited_for_a_flush_is_not_remembered_where_no_agent_speaks(tmp_path: Path) -> None:
    """P10. A program that has sessions and no replies: nothing wakes a sweep."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as asking:
                for number in range(1, 101):
                    note = wire.NewEntry("app.note", b'{"text":"x"}', f"e{number}")
                    asking.send(wire.Append(number, "s", [note], level="synced"))
                    await asking.hear(wire.Answer)
                assert len(virtual.engine.askers) <= 1

    run(main)
