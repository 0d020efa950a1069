"""What agents say, so that a reader knows every byte of it: the token of any stream and seq.

Every seventh token is half an emoji and the next one the other half, as vendors send them.
"""

from __future__ import annotations

__all__ = ["joined", "said", "token"]


def token(stream: int, seq: int) -> str:
    """The text of one token; seqs begin at 1."""
    if seq % 7 == 3:
        return "\ud83d"
    if seq % 7 == 4:
        return "\ude00"
    return f"{stream}.{seq} "


def joined(text: str) -> str:
    """Halves that meet are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def said(stream: int, last_seq: int, first_seq: int = 1) -> str:
    """All tokens of a stream from `first_seq` to `last_seq`."""
    return joined("".join(token(stream, seq) for seq in range(first_seq, last_seq + 1)))
