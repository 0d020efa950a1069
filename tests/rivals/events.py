"""What the writers of these trials say: every byte of an event follows from its stream and seq.

Owns: the text of an event, and telling what a record that was read back is: one event, as it was
said; or several, or parts; or something nobody said. Refuses: counting (`judge.py`).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["END", "LARGE", "MIXED", "count", "event", "which"]

END: Final = ";"
"""The last byte of each event, and in no other place of one: a joined text can be cut again."""
MIXED: Final = (24,) * 11 + (200,) * 3 + (3_000, 12_000)
"""Bytes of an event, in turn: tokens, lines, the results of tools."""
LARGE: Final = (200_000,)
"""So long that a SIGKILL mostly finds its write half done."""
_HEAD: Final = re.compile(r"(w\d)\.(\d+)\.(\d+)\.")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def event(stream: str, seq: int, sizes: tuple[int, ...] = MIXED) -> str:
    """The text of one event; seqs begin at 1."""
    return _text(stream, seq, sizes[seq % len(sizes)])


def _text(stream: str, seq: int, size: int) -> str:
    head = f"{stream}.{seq}.{size}."
    first = seq % 26
    turned = _LETTERS[first:] + _LETTERS[:first]
    return head + (turned * (size // 26 + 1))[: size - len(head) - 1] + END


def which(text: str) -> tuple[str, int] | None:
    """Stream and seq of an event that is as it was said; None for anything else."""
    found = _HEAD.match(text)
    if found is None or len(found[3]) > 6:
        return None
    stream, seq, size = found[1], int(found[2]), int(found[3])
    return (stream, seq) if text == _text(stream, seq, size) else None


def count(text: str) -> int:
    """How many events, or beginnings of one, are in it."""
    return len(_HEAD.findall(text))
