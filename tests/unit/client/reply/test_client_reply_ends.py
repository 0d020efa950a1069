"""How a reply ends: by a call, by leaving its block, by nobody."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
from fake_daemon import FakeDaemon
from unit.client.reply.test_client_reply import said
from walld_client.wire import messages as wire


def test_the_first_terminal_wins_and_later_calls_are_counted(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    assert reply.error("boom", kind="auth") == 2
    later: list[Callable[[], int]] = [
        reply.end,
        lambda: reply.cancel("no"),
        lambda: reply.error("again"),
        lambda: reply.token("late"),
        lambda: reply.reasoning("late"),
        lambda: reply.tool("late"),
        reply.step,
        lambda: reply.finish("late"),
    ]
    assert [call() for call in later] == [0] * 8
    assert client.stats().late == 8
    assert reply.release() == 3
    assert reply.release() == 0
    assert said(daemon, 3)[1:] == [wire.AppError(1, 2, "boom", "auth"), wire.Release(1, 3)]


def test_release_before_the_end_is_a_mistake(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S", stream_id="r")
    with pytest.raises(ValueError, match="'r' has not ended"):
        reply.release()
    with pytest.raises(ValueError, match="'r' has not ended"):
        client.release("r")
    assert reply.token("x") == 1


def test_end_without_auto_release_keeps_it(daemon: FakeDaemon, client: walld_client.Client) -> None:
    reply = client.reply("S", auto_release=False)
    assert reply.end() == 1
    assert reply.release() == 2
    assert said(daemon, 2) == [wire.End(1, 1, True), wire.Release(1, 2)]


def test_release_by_id_after_the_object_is_gone(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    with client.reply("S", stream_id="r") as reply:
        reply.token("x")
    del reply
    gc.collect()
    said(daemon, 2)
    daemon.agent().say(wire.Ack(b"L" * 16, 1, 1, [(1, 2, 2)]))
    assert client.release("r")
    assert not client.release("r")
    assert not client.release("never")
    assert said(daemon, 3)[-1] == wire.Release(1, 3)


def leave(reply: Any, raised: BaseException | None) -> None:
    with reply:
        reply.token("x")
        if raised is not None:
            raise raised


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("raised", "terminal"),
    [
        (None, wire.End(1, 2, True)),
        (ValueError("boom"), wire.AppError(1, 2, "boom", "ValueError")),
        (KeyboardInterrupt(), wire.End(1, 2, False, None, "cancelled: KeyboardInterrupt")),
        (GeneratorExit(), wire.End(1, 2, False, None, "cancelled: GeneratorExit")),
        (asyncio.CancelledError(), wire.End(1, 2, False, None, "cancelled: CancelledError")),
        (SystemExit(), wire.End(1, 2, False, None, "cancelled: SystemExit")),
        (
            Unprintable(),
            wire.AppError(1, 2, "<Unprintable that cannot be shown>", "Unprintable"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_leaving_the_block(
    daemon: FakeDaemon,
    client: walld_client.Client,
    raised: BaseException | None,
    terminal: wire.Event,
) -> None:
    reply = client.reply("S")
    if raised is None:
        leave(reply, None)
    else:
        with pytest.raises(type(raised)) as caught:
            leave(reply, raised)
        assert caught.value is raised
    assert said(daemon, 2)[1:] == [terminal]


def test_leaving_the_block_after_end_adds_nothing(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    with client.reply("S") as reply:
        reply.end()
    with client.reply("S") as other:
        other.cancel("stop")
    said(daemon, 1, stream=2)
    assert client.stats().late == 0


def test_a_generator_that_is_dropped_is_a_cancel(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    def stream() -> Iterator[str]:
        with client.reply("S") as reply:
            for piece in "abc":
                reply.token(piece)
                yield piece

    generator = stream()
    next(generator)
    del generator
    gc.collect()
    assert said(daemon, 2)[-1] == wire.End(1, 2, False, None, "cancelled: GeneratorExit")


def test_a_reply_that_is_collected_unended_is_abandoned(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    client.reply("S").token("x")
    gc.collect()
    assert said(daemon, 2)[-1] == wire.End(1, 2, False, None, "abandoned")


def test_a_reply_collected_in_the_middle_of_a_send_does_not_deadlock(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    with client._link.mutex, client._link:
        pass
    doomed = client.reply("S")
    with client._link.mutex, client._link:  # what a collection within a send looks like
        del doomed
        gc.collect()
    assert said(daemon, 1)[-1] == wire.End(1, 1, False, None, "abandoned")


def test_an_interrupt_within_send_neither_tears_the_stream_nor_reuses_a_seq(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("a")
    send = client._link.send

    def interrupted(view: bytes | memoryview, flags: int) -> int:
        client._link.send = send
        send(bytes(view)[:7], flags)
        raise KeyboardInterrupt

    client._link.send = interrupted
    with pytest.raises(KeyboardInterrupt), reply:
        reply.token("b")
    second = daemon.agent(1)
    daemon.until(lambda: isinstance(second.messages[-1], wire.End))
    assert second.text() == "ab"
    assert second.messages[-1].reason == "cancelled: KeyboardInterrupt"
    assert [e.seq for e in second.events()] == [0, 1, 2, 3]


def test_arguments_that_are_none_are_named(daemon: FakeDaemon, path: str) -> None:
    client = walld_client.connect(path)
    for wrong in ("a", 2**70, -1, 1.0, True):
        with pytest.raises(ValueError, match="last_seq must be an int from 0 to 4294967295"):
            client.resolve("x", wrong)  # type: ignore[arg-type]
    client.close(0.0)
