"""A reply's messages as the entries of its session have them.

Owns: what an entry says of a call beside what the model sees, whether a reply came to its end.
Refuses: the messages themselves
(`partial.py`), appending them: the daemon does where a reply of a turn is released, `adopting.py`
where its process is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from walld_client.encoding import wtf8

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply
    from walld_client.recovered.segments import Segment

__all__ = ["OF_INFO", "adopted_messages", "entry_messages", "has_ended"]

OF_INFO: Final = frozenset(("server", "side_effect", "resume_policy", "idempotency", "key"))
"""What the account of a call reads of what its program said beside it."""
_SAID_WHOLE: Final = (None, "provider_paused", "answer_missing")
"""Why a reply may be partial behind whose last word the provider said that its message ended."""
_CUT: Final = {"_partial": True, "_partial_reason": "end_missing"}
"""Of a reply whose text, or last step, reads as whole."""


def entry_messages(reply: PartialReply) -> list[dict[str, Any]]:
    """Plain messages, one a step: each call says by which seq it began, how many characters of its
    message's text stand before it (`at`), and what its program said of its risk.
    """
    last = [one for one in reply.segments if one.attempt == reply.attempts - 1]
    steps: dict[int, list[Segment]] = {}
    for segment in last:
        steps.setdefault(segment.step, []).append(segment)
    by_seq = {step[0].first_seq: step for step in steps.values()}
    told = reply.messages()
    for message in told:
        calls = iter(message.get("tool_calls", ()))
        said = ""
        for segment in by_seq[message["_wal_seq"]] if "tool_calls" in message else ():
            if segment.kind == "text":
                said += segment.text
            elif segment.kind == "tool":
                one = next(calls)
                one.update(seq=segment.first_seq, at=len(wtf8.join(said)))
                if isinstance(segment.info, dict):
                    one.update({name: segment.info[name] for name in OF_INFO & segment.info.keys()})
    return told


def adopted_messages(reply: PartialReply) -> list[dict[str, Any]]:
    """The same of one that nobody will go on with: the last of a reply that was cut says so."""
    told = entry_messages(reply)
    if told and not has_ended(reply):
        told[-1] = _CUT | told[-1]
    return told


def has_ended(reply: PartialReply) -> bool:
    """Its program or its provider said that it is whole. That its text ends in a sentence does not:
    what would have come next nobody knows.
    """
    return reply.status == "complete" or (
        reply.finish_reason is not None and reply.partial_reason in _SAID_WHOLE
    )
