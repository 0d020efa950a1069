"""The client's side of the wire: whatever answers at the socket, an agent or a reader lives on.

Input: a byte for the kind (an agent's connection, a reader's, a reader's answer), one for how it
is cut, the rest is what the daemon says.
Oracle: an agent hears anything without an exception, and nothing follows for its streams that is
not so; a reader gets an answer, Refused or Unavailable; whatever reply that makes can be looked at
in every form.
"""

from __future__ import annotations

import contextlib
import json
import logging

import msgspec
from walld_client.errors import Refused, Unavailable
from walld_client.link.ack_handler import AckHandler
from walld_client.link.registry import Registry
from walld_client.link.stream import Stream
from walld_client.query.requests import Conversation, decode_bool, decode_replies
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.wire import framing
from walld_client.wire import messages as wire

__all__ = ["one"]

STREAMS, EVENTS = 3, 10
KINDS = {"text", "reasoning", "tool", "tool_result", "custom", "gap"}
FORMATS = ("plain", "openai", "anthropic")


def one(data: bytes) -> None:
    """One input."""
    kind, step, raw = (data[0] % 3 if data else 0), (data[1] if len(data) > 1 else 0), data[2:]
    log = logging.getLogger("walld")
    was, log.disabled = log.disabled, True  # what it would say of each input is not looked at
    try:
        if kind == 0:
            _heard(raw, step or len(raw) or 1)
        elif kind == 1:
            _asked(raw, step or len(raw) or 1)
        else:
            _answered(raw)
    finally:
        log.disabled = was


def _heard(raw: bytes, step: int) -> None:
    """An agent's connection: nothing is raised, and `synced` never passes what was sent."""
    registry = Registry()
    streams = []
    for number in range(1, STREAMS + 1):
        stream = Stream(number, wire.Start(number, 0, f"r{number}", "s"), long_way_only=False)
        stream.introduced, stream.next_seq = True, EVENTS
        registry.add(stream)
        streams.append(stream)
    acks = AckHandler(registry)
    acks.start()
    before = [-1] * STREAMS
    for at in range(0, len(raw), step):
        acks.feed(raw[at : at + step])
        for index, stream in enumerate(streams):
            assert before[index] <= stream.synced < stream.next_seq == EVENTS
            before[index] = stream.synced
        if acks.fatal:
            break
    assert acks.text_bytes_max >= 1024
    assert set(registry.by_number) <= {1, 2, 3}


def _asked(raw: bytes, step: int) -> None:
    """A reader's connection."""
    conversation = Conversation()
    conversation.next_id()
    for at in range(0, len(raw), step):
        try:
            answer = conversation.feed(raw[at : at + step])
        except (Refused, Unavailable):
            return
        if answer is not None:
            assert len(answer) <= len(raw)
            _answered(answer)
            return


def _answered(raw: bytes) -> None:
    """What an answer says is a list of replies, or a bool, or neither: Unavailable."""
    try:
        assert decode_bool(raw) in (True, False)
        return
    except Unavailable:
        pass
    try:
        recovered = decode_replies(raw)
    except Unavailable:
        return
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(recovered), type=list[wire.Recovered])
    assert again == recovered, "and back again"
    for reply in recovered:
        if all(one.kind in KINDS for one in reply.segments):  # the daemon has no others
            seen(from_recovered(reply))
    framing.split(raw[: framing.FRAME_BYTES_MAX], limit=1 << 32)


def seen(reply: PartialReply) -> None:
    """Every form an application or a person asks for."""
    assert isinstance(reply.text, str)
    for form in FORMATS:
        messages = reply.messages(form)  # type: ignore[arg-type]
        json.dumps(messages).encode("ascii")
        with contextlib.suppress(ValueError):  # several messages are not one: said so
            json.dumps(reply.to_message(form)).encode("ascii")  # type: ignore[arg-type]
    json.dumps(reply.to_dict()).encode("ascii")
