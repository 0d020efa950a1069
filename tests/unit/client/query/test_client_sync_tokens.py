"""Sync tokens, sans-IO: which is kept, and when one is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import walld_client
import walld_client.aio
from walld_client.query.requests import Conversation
from walld_client.query.sync_tokens import SyncTokens
from walld_client.wire import framing
from walld_client.wire import messages as wire

OLD, NEW, NEWER = (
    daemon + bytes([*bytes(31), at]) for daemon, at in ((b"1" * 8, 9), (b"2" * 8, 1), (b"2" * 8, 2))
)
_decode = msgspec.msgpack.Decoder(wire.Attest | wire.Append).decode


def sent(conversation: Conversation, session_id: str = "q") -> list[wire.Attest | wire.Append]:
    """A request, and what goes with it."""
    frames = conversation.request(
        lambda number: wire.Append(number, session_id, [], None, "synced")
    )
    bodies, rest = framing.split(frames)
    assert not rest
    return [_decode(body) for body in bodies]


def hear(conversation: Conversation, *messages: wire.Answer | wire.Error) -> bytes | None:
    return conversation.feed(b"".join(map(framing.encode, messages)))


def test_it_is_shown_once_on_a_connection_before_the_first_request() -> None:
    tokens = SyncTokens()
    tokens.keep("q", OLD)
    conversation = Conversation(tokens)
    (other,) = sent(conversation, "other")
    assert isinstance(other, wire.Append)
    hear(conversation, wire.Answer(other.id, b"\x90"))
    shown, append = sent(conversation)
    assert isinstance(shown, wire.Attest)
    assert (shown.session_id, shown.receipt) == ("q", OLD)
    assert isinstance(append, wire.Append)
    assert shown.id != append.id
    answer = hear(conversation, wire.Answer(shown.id, b"\xc2"), wire.Answer(append.id, b"\x90"))
    assert answer == b"\x90"
    assert len(sent(conversation)) == 1


def test_one_that_was_not_looked_at_is_shown_again_and_not_replaced() -> None:
    """The daemon still read its log; the request behind it was taken, with a receipt of its own."""
    tokens = SyncTokens()
    tokens.keep("q", OLD)
    conversation = Conversation(tokens)
    shown, append = sent(conversation)
    later = wire.Error("recovering", "ask again", id=shown.id)
    hear(conversation, later, wire.Answer(append.id, b"\x90", receipt=NEW))
    assert tokens.of("q") == OLD
    shown, append = sent(conversation)
    assert isinstance(shown, wire.Attest)
    assert shown.receipt == OLD
    hear(conversation, wire.Answer(shown.id, b"\xc3"), wire.Answer(append.id, b"\x90", receipt=NEW))
    assert tokens.of("q") == NEW
    assert len(sent(conversation)) == 1


def test_a_daemon_that_knows_of_none_is_not_asked_again() -> None:
    tokens = SyncTokens()
    tokens.keep("q", OLD)
    conversation = Conversation(tokens)
    shown, append = sent(conversation)
    hear(
        conversation, wire.Error("bad_request", "tag 62", id=shown.id), wire.Answer(append.id, b"")
    )
    assert len(sent(conversation)) == 1


def test_the_later_of_one_daemon_is_kept_whichever_comes_first() -> None:
    tokens = SyncTokens()
    for receipt in (OLD, NEWER, NEW):
        tokens.keep("q", receipt)
    assert tokens.of("q") == NEWER
    for number in range(5000):
        tokens.keep(f"{number}", NEW)
    assert len(tokens.sessions()) == 4096
    assert tokens.of("q") is None


@pytest.mark.parametrize("connect", [walld_client.connect, walld_client.aio.connect])
def test_all_connections_of_a_client_show_and_keep_the_same(
    connect: Callable[[str], Any], tmp_path: Path
) -> None:
    """It has as many as it asks at a time, and whichever is free asks next."""
    client = connect(str(tmp_path / "nobody"))
    one, other = client._query, client._new_query()
    one._sync_tokens.keep("q", NEW)
    assert other._sync_tokens.of("q") == NEW
