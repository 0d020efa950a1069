"""Unreleased replies, read for the views of their session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asking import refused, say
from virtual_daemon import Home, Peer, Virtual, asked, living, run
from walld_client.wire import messages as wire

from walld.daemon.storage.reply_reader import ReplyReader
from walld.errors import FormatError


def reader_of(virtual: Virtual) -> ReplyReader:
    return virtual.daemon.maintenance._partial_writer._reader


async def say_of_a_turn(virtual: Virtual, stream_id: str) -> Peer:
    agent = Peer(virtual)
    agent.send(wire.Start(1, 0, stream_id, "s", turn_id="t"), wire.Token(1, 1, b"I read."))
    await agent.drain()
    return agent


@pytest.mark.parametrize(("name", "read"), [("messages", ["of"]), ("pending", ["of", "none"])])
def test_what_is_read_again_behind_damage_is_what_was_asked_for(
    tmp_path: Path, name: str, read: list[str]
) -> None:
    """It was all that the session has, and a disk that failed then was no refusal."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            agents = [await say_of_a_turn(virtual, "of"), await say(virtual, "none", b"x")]
            reader, seen = reader_of(virtual), list[list[str]]()

            async def failing(_uid: int, streams: list[Any], *_more: Any, **_: Any) -> Any:
                seen.append(sorted(one.begin.stream_id for one in streams))
                if len(seen) == 1:
                    raise FormatError("damaged, and set aside")
                raise OSError(5, "no reading here")

            vars(reader)["replies"] = failing
            error = await refused(virtual, wire.Project(1, "s", name, b"{}"))
            assert (error.code, error.got) == ("unreadable", "s")
            assert "no reading here; ask again" in error.message
            assert seen == [sorted(read)] * 2
            del vars(reader)["replies"]
            assert await asked(virtual, wire.Project(1, "s", "pending", b"{}")) is not None
            for agent in agents:
                agent.socket.close()

    run(main)
