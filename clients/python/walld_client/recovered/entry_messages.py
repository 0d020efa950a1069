"""A reply's messages as the entries of its session have them.

Owns: what an entry says of a call beside what the model sees. Refuses: the messages themselves
(`partial.py`), appending them: the daemon does where a reply of a turn is released, `adopting.py`
where its process is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from walld_client.encoding import wtf8

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply
    from walld_client.recovered.segments import Segment

__all__ = ["OF_INFO", "entry_messages"]

OF_INFO: Final = frozenset(("server", "side_effect", "resume_policy", "idempotency", "key"))
"""What the account of a call reads of what its program said beside it."""


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
