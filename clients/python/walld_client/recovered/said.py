"""What one side said in a row, as it is sent: blocks and calls in the order in which they came.

Owns: which blocks of an answer go back to Anthropic beside its text, where calls stand among them,
where a message is cut or joined to the one before. Refuses: reading messages and results
(`provider.py`).

Thoughts go back where they stood, since their place is part of what their signature says, or not
at all. So does what the provider itself ran: a call with its result. No message ends in a thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from walld_client.recovered.blocks import blocks_of, text_block
from walld_client.recovered.calls import ProviderCall

__all__ = ["Said", "answer_of", "answer_parts", "cut_behind_calls", "is_served"]

Part = dict[str, Any] | ProviderCall
_THOUGHT_KEYS: Final = {
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}
_BLANK_LINE: Final = "\n\n"


class Said:
    """Messages of one side. answer: the provider's id of the answer that they are, if it is known.
    is_cut: what stands behind the last of its calls may go on.
    """

    def __init__(
        self,
        role: str,
        parts: Iterable[Part] = (),
        answer: str | None = None,
        *,
        is_cut: bool = False,
    ) -> None:
        self.role = role
        self.parts = list(parts)
        self.answer = answer
        self.is_cut = is_cut

    @property
    def calls(self) -> list[ProviderCall]:
        """In order."""
        return [one for one in self.parts if isinstance(one, ProviderCall)]

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """All but calls."""
        return [one for one in self.parts if not isinstance(one, ProviderCall)]

    @property
    def text(self) -> str:
        """Of all its blocks."""
        texts = (block["text"] for block in self.blocks if block["type"] == "text")
        return _BLANK_LINE.join(texts)

    def settle(self) -> None:
        """Leave out calls that nobody answered, and of what is cut all behind the last that has."""
        self.parts = [
            one for one in self.parts if not isinstance(one, ProviderCall) or one.answered
        ]
        while self.is_cut and self.parts and not isinstance(self.parts[-1], ProviderCall):
            self.parts.pop()

    def tidy(self) -> None:
        """Leave out what may not go as it stands, once nothing more is joined to it."""
        pairs = _served_pairs(self.parts)
        kept = [one for one in self.parts if not is_served(one) or id(one) in pairs]
        while kept and _is_thought(kept[-1]):
            kept.pop()
        self.parts = kept

    def strip(self) -> None:
        """Leave out white space at its end."""
        last = self.parts[-1]
        if not isinstance(last, ProviderCall) and last["type"] == "text":
            self.parts[-1] = text_block(last["text"].rstrip())

    def assistant_content(self) -> list[dict[str, Any]]:
        """The blocks of an answer as Anthropic takes them, texts in a row as one."""
        sent: list[dict[str, Any]] = []
        for one in self.parts:
            block = one.tool_use() if isinstance(one, ProviderCall) else one
            if sent and sent[-1]["type"] == block["type"] == "text":
                sent[-1] = text_block(f"{sent[-1]['text']}{_BLANK_LINE}{block['text']}")
            else:
                sent.append(block)
        return sent


def answer_of(message: Mapping[str, Any]) -> str | None:
    """The provider's id of the answer that it is a part of, where the writer of a file kept it.

    Some have a message for each block.
    """
    foreign = message.get("_foreign")
    said = foreign.get("message") if isinstance(foreign, Mapping) else None
    given = said.get("id") if isinstance(said, Mapping) else None
    is_answers = isinstance(given, str) and message.get("role") == "assistant"
    return given if is_answers and not message.get("_wal_cut") else None


def answer_parts(
    message: Mapping[str, Any], blocks: Sequence[dict[str, Any]], calls: Sequence[ProviderCall]
) -> list[Part]:
    """The parts of an answer. blocks: of its content; calls: of the message, each where its block
    stands, or where it says itself (`at`), or at the end.
    """
    content = message.get("content")
    has_own = not message.get("_wal_recovered")
    by_block = {id(call.block): call for call in calls if call.block is not None}
    if not by_block and isinstance(content, str) and (placed := _placed(content, calls)):
        return placed
    parts: list[Part] = []
    for block in blocks:
        one = by_block.get(id(block)) or _kept(block, has_own)
        if one is not None:
            parts.append(one)
    return parts + [call for call in calls if call.block is None]


def cut_behind_calls(said: Said) -> list[Said]:
    """Text that stood behind a call is the next message's, with the thoughts right before it."""
    cut = [Said(said.role, answer=said.answer)]
    thoughts: list[Part] = []
    for one in said.parts:
        if _is_thought(one):
            thoughts.append(one)
            continue
        is_text = not isinstance(one, ProviderCall) and one["type"] == "text"
        if is_text and any(isinstance(part, ProviderCall) for part in cut[-1].parts):
            cut.append(Said(said.role))
        cut[-1].parts += [*thoughts, one]
        thoughts.clear()
    cut[-1].parts += thoughts
    return cut


def _placed(content: str, calls: Sequence[ProviderCall]) -> list[Part]:
    """Text and calls, where each call says how much of the text stands before it; else nothing."""
    places = [call.at for call in calls if call.at is not None]
    if not places or len(places) != len(calls) or places != sorted(places):
        return []
    parts: list[Part] = []
    begun = 0
    for call, at in zip(calls, places, strict=True):
        parts += blocks_of(content[begun:at])
        is_apart = call.behind is not None and not content[at : call.behind].strip()
        begun = max(begun, (call.behind or at) if is_apart else at)
        parts.append(call)
    return [*parts, *blocks_of(content[begun:])]


def _kept(block: dict[str, Any], has_own: bool) -> dict[str, Any] | None:
    """A block of an answer as it goes back, if it does. has_own: also what is Anthropic's alone."""
    if block["type"] == "text":
        return block
    if not has_own:
        return None
    if (keys := _THOUGHT_KEYS.get(block["type"])) is not None:
        sent = {name: block.get(name) for name in keys}
        is_whole = all(isinstance(one, str) for one in sent.values())
        return sent if is_whole and sent[keys[-1]] else None
    return block if is_served(block) else None


def is_served(part: Part) -> bool:
    """A call that the provider ran, or the result of one."""
    if isinstance(part, ProviderCall):
        return False
    return part["type"] not in ("tool_use", "tool_result") and part["type"].endswith(
        ("_tool_use", "_tool_result")
    )


def _served_pairs(parts: Iterable[Part]) -> set[int]:
    """Those of a call and its result behind it, by id()."""
    open_calls: dict[str, int] = {}
    pairs: set[int] = set()
    for one in parts:
        if isinstance(one, ProviderCall) or not is_served(one):
            continue
        is_call = one["type"].endswith("_use")
        given = one.get("id" if is_call else "tool_use_id")
        if is_call and isinstance(given, str):
            open_calls[given] = id(one)
        elif isinstance(given, str) and given in open_calls:
            pairs |= {open_calls.pop(given), id(one)}
    return pairs


def _is_thought(part: Part) -> bool:
    return not isinstance(part, ProviderCall) and part["type"] in _THOUGHT_KEYS
