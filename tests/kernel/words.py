"""What a stream of these loops says: every byte of it follows from its name."""

from __future__ import annotations

import zlib

from agents.words import joined, token

__all__ = ["said", "spoken"]

_TIMES = (1,) * 10 + (40,) * 3 + (400,) * 2 + (3000,)
"""How often a word is said in a token: small ones, pages, and more than one write takes whole."""


def spoken(stream_id: str, seq: int) -> str:
    """One token; seqs begin at 1."""
    seed = zlib.crc32(stream_id.encode())
    return token(seed % 1000, seq) * _TIMES[seed % len(_TIMES)]


def said(stream_id: str, first_seq: int, last_seq: int) -> str:
    """The text of these tokens."""
    return joined("".join(spoken(stream_id, seq) for seq in range(first_seq, last_seq + 1)))
