"""Leaving the block, in every way there is: what is kept, and what is said of it (API.md, P6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until
from walld_client import PartialReply

WAYS = {
    # how the block is left -> (status, lost_reason, error kind, partial)
    "pass": ("complete", None, None, False),
    "done = True": ("complete", None, None, False),
    "raise ValueError('no luck')": ("errored", None, "ValueError", True),
    "1 / 0": ("errored", None, "ZeroDivisionError", True),
    "raise KeyboardInterrupt": ("cancelled", "cancelled: KeyboardInterrupt", None, True),
    "raise SystemExit": ("cancelled", "cancelled: SystemExit", None, True),
    "raise GeneratorExit": ("cancelled", "cancelled: GeneratorExit", None, True),
}


def kept(daemon: DaemonProcess, stream_id: str = "r") -> PartialReply:
    reply = daemon.reader.recover(stream_id=stream_id)
    assert reply is not None
    return reply


@pytest.mark.parametrize("way", WAYS)
def test_out_of_the_block(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], way: str
) -> None:
    status, lost_reason, kind, partial = WAYS[way]
    agent = make_agent(daemon)
    raised = agent.do(
        f"""
        raised = None
        try:
            with client.reply('s', stream_id='r') as reply:
                reply.token('The text so far')
                {way}
        except BaseException as error:
            raised = type(error).__name__
        reply.drain(20)
        raised
        """
    )
    expected = way.split("raise ")[1].split("(")[0] if "raise " in way else None
    assert raised == ("ZeroDivisionError" if way == "1 / 0" else expected), "raised on"
    for owner_alive in (True, False):
        if not owner_alive:
            agent.kill()
        reply = kept(daemon) if owner_alive else daemon.orphan("r")
        assert reply.text == "The text so far"
        assert (reply.status, reply.lost_reason, reply.owner_alive) == (
            status,
            lost_reason,
            owner_alive,
        )
        assert (reply.error.kind if reply.error else None) == kind
        assert reply.partial is partial
    until(lambda: len(daemon.partials()) == 1, "one partial: a forgotten save costs disk")
    assert daemon.reader.resolve("r", reply.last_seq) is True


def test_a_bare_return_in_the_middle_is_complete_and_kept(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        def turn():
            with client.reply('s', stream_id='r') as reply:
                reply.token('One sentence.')
                return reply
        turn().drain(20)
        """
    )
    reply = kept(daemon)
    assert (reply.status, reply.text, reply.partial) == ("complete", "One sentence.", False)
    assert reply.owner_alive is True
    assert daemon.reader.orphans() == []
    assert agent.do("client.release('r')") is True
    until(lambda: daemon.reader.recover(stream_id="r") is None, "released after all")


def test_a_generator_that_is_closed(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        def chunks():
            with client.reply('s', stream_id='r') as reply:
                for number in range(100):
                    reply.token(f'{number} ')
                    yield number
        generator = chunks()
        [next(generator) for _ in range(3)]
        generator.close()
        """
    )
    reply = until(lambda: ended(daemon, "r"), "the cancel")
    assert (reply.status, reply.text) == ("cancelled", "0 1 2 ")
    assert reply.lost_reason == "cancelled: GeneratorExit"


def ended(daemon: DaemonProcess, stream_id: str) -> PartialReply | None:
    """The reply, once its end has arrived."""
    reply = daemon.reader.recover(stream_id=stream_id)
    return None if reply is None or reply.status == "live" else reply


def test_asyncio_cancel_and_error_and_end(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    daemon = daemon_on_each
    agent = make_agent(daemon)
    outcomes = agent.do(
        f"""
        import asyncio, walld_client.aio
        async def turn(aio, name, then):
            async with aio.reply('s', stream_id=name) as reply:
                for number in range(10):
                    reply.token(f'{{number}} ')
                    await asyncio.sleep(0)
                if then == 'wait':
                    waiting.set()
                    await asyncio.sleep(3600)
                if then == 'raise':
                    raise RuntimeError('broke')
                if then == 'end':
                    assert await reply.drain(20)
                    reply.end()
        async def main():
            global waiting
            waiting = asyncio.Event()
            aio = walld_client.aio.connect({daemon.socket_path!r})
            task = asyncio.create_task(turn(aio, 'cancelled', 'wait'))
            others = [turn(aio, 'raised', 'raise'), turn(aio, 'left', '')]
            others.append(turn(aio, 'ended', 'end'))
            outcomes = await asyncio.gather(*others, return_exceptions=True)
            await waiting.wait()
            task.cancel()
            outcomes += await asyncio.gather(task, return_exceptions=True)
            there = await aio.recover_all('s')
            assert await aio.recover(stream_id='ended') is None
            assert await aio.has_partial('s') is True
            await aio.close()
            return [type(outcome).__name__ for outcome in outcomes] + [len(there)]
        asyncio.run(main())
        """
    )
    assert outcomes == ["RuntimeError", "NoneType", "NoneType", "CancelledError", 3]
    text = "".join(f"{number} " for number in range(10))
    for name, status in (("cancelled", "cancelled"), ("raised", "errored"), ("left", "complete")):
        reply = until(lambda name=name: ended(daemon, name), name)
        assert (reply.status, reply.text) == (status, text)
    assert kept(daemon, "cancelled").lost_reason == "cancelled: CancelledError"
    error = kept(daemon, "raised").error
    assert error is not None
    assert (error.kind, error.message) == ("RuntimeError", "broke")
    assert daemon.reader.recover(stream_id="ended") is None


def test_a_reply_that_is_dropped_without_an_end_is_abandoned(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        import gc
        reply = client.reply('s', stream_id='r'); reply.token('half a sen')
        del reply; gc.collect()
        """
    )
    reply = until(lambda: ended(daemon, "r"), "the cancel")
    assert (reply.status, reply.lost_reason) == ("cancelled", "abandoned")
    assert (reply.text, reply.partial, reply.owner_alive) == ("half a sen", True, True)


def test_a_program_that_just_ends(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Nothing is lost that was sent before, be it much: the interpreter's exit waits for it."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 50_001)][-1]")
    assert agent.leave() == 0
    reply = daemon.orphan("r")
    assert reply.last_seq in (50_000, 50_001), "an end may follow, where the object was collected"
    assert reply.gaps == []
    assert len(reply.text) > 50_000


def test_a_program_that_ends_while_something_waits(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """The kernel was full; the exit waits, within its bound, until it has taken the rest."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); reply.drain(20)")
    daemon.freeze()
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 40_001)][-1]")
    assert agent.do("client.stats().backlog") > 0
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    daemon.thaw()
    assert agent.process.wait(30) == 0
    assert daemon.orphan("r").last_seq >= 40_000
