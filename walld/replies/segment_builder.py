"""Builds one segment of a reply from its items.

Owns: how a segment's parts become one `RecoveredSegment`. Refuses: which event touches which
segment (`fold.py`).
"""

from __future__ import annotations

import json
from typing import NoReturn

from walld_client.wire.messages import RecoveredSegment

from walld.replies.text_end import is_surely_said

__all__ = ["SegmentBuilder"]

_LOOKED_AT = 16
"""Pieces of a text in which is looked for a word: what begins blank is kept as it is."""


class SegmentBuilder:
    """A segment while it grows."""

    __slots__ = (
        "arguments",
        "at_ms",
        "attempt",
        "call_id",
        "first_seq",
        "info",
        "is_over",
        "is_said",
        "kind",
        "last_seq",
        "made",
        "name",
        "outcome",
        "replaced",
        "result",
        "result_info",
        "result_json",
        "step",
        "text",
        "truncated_from",
        "verdict",
        "whole",
    )

    def __init__(self, kind: str, step: int, attempt: int, seq: int, at_ms: int) -> None:
        self.kind = kind
        self.step = step
        self.attempt = attempt
        self.is_over = False
        """It belongs to an attempt that a later one has replaced."""
        self.replaced: SegmentBuilder | None = None
        """Of a call: the one before it that has the same id."""
        self.first_seq = self.last_seq = seq
        self.at_ms = at_ms
        self.text: list[bytes] = []
        self.is_said = False
        """Its text is not blank, and is not kept."""
        self.made: RecoveredSegment | None = None
        self.call_id: str | None = None
        self.name: str | None = None
        self.arguments: list[bytes] | None = None
        self.result: bytes | None = None
        self.result_json = False
        self.outcome: str | None = None
        self.truncated_from = 0
        self.info: bytes | None = None
        """Said beside it."""
        self.result_info: bytes | None = None
        """Of a call: said beside its result."""
        self.verdict: str | None = None
        self.whole: bool | None = None
        """Of a call: whether its arguments were whole when that was asked."""

    def says(self, name: str, arguments: bytes | None) -> bool:
        """It is a call of that tool, with arguments that are equal as JSON."""
        if self.arguments is None or arguments is None or self.name != name:
            return False
        given = _in_one_form(arguments)
        return given is not None and given == _in_one_form(b"".join(self.arguments))

    def was_whole(self) -> bool:
        """Its arguments were whole JSON when this was asked first: asked at each piece, it would
        cost what they all have.
        """
        if self.whole is None:
            self.whole = _is_whole_json(b"".join(self.arguments or ()))
        return self.whole

    def hear(self, text: bytes) -> int:
        """More of its text, of which is kept whether it is blank. The bytes that are kept."""
        if self.is_said:
            return 0
        self.text.append(text)
        if len(self.text) > _LOOKED_AT or not is_surely_said(b"".join(self.text)):
            return len(text)
        self.text, self.is_said = [b"."], True
        return 0

    def segment(self) -> RecoveredSegment:
        """The segment as it stands. The same object while no event touches it."""
        made = self.made
        if made is None or (made.last_seq, made.attempt) != (self.last_seq, self.attempt):
            made = self.made = self._segment()
        return made

    def _segment(self) -> RecoveredSegment:
        arguments = None if self.arguments is None else b"".join(self.arguments)
        self.text = [b"".join(self.text)]  # the same bytes as the segment's, and held once
        return RecoveredSegment(
            self.kind,
            self.step,
            self.attempt,
            self.first_seq,
            self.last_seq,
            self.at_ms,
            self.text[0],
            self.call_id,
            self.name,
            arguments,
            arguments is not None and _is_whole_json(arguments),
            self.result,
            self.result_json,
            self.outcome,
            self.truncated_from,
            self.result_info if self.info is None else self.info,
            self.verdict,
            self.result_info,
        )


def _is_whole_json(arguments: bytes) -> bool:
    """True for one JSON value, also where its strings hold half a character."""
    try:
        _loaded(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _in_one_form(arguments: bytes) -> str | None:
    """Equal for what is equal as JSON; None for what is none."""
    try:
        return json.dumps(_loaded(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _loaded(arguments: bytes) -> object:
    return json.loads(arguments.decode("utf-8", "surrogatepass"), parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
