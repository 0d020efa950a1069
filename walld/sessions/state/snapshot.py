"""A session's state as bytes: a base, and deltas that lead on from it.

Owns: `Piece`, what both of them say, and its bytes. Refuses: what it does to a state
(`session_state.py`), files, when a base is written anew (the daemon).

A delta says what its steps came to, as a base does, and not the steps: who opens a session adds
names as blocks of hashes, and applies none of them. At 100,000 events the increments of a snapshot
are of 5,000 to 13,000 events.

Invariants: never the truth. A snapshot that cannot be read is a FormatError, and whoever asked
folds the events instead. Parents are said only where an entry does not
hang on the one before it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from walld.errors import FormatError
from walld.sessions.state.hash_index import SeqsBlock
from walld.sessions.state.journal import JournalPack
from walld.sessions.state.packed import Packing

__all__ = ["Piece", "decode_piece", "encode_piece"]

PIECE_VERSION: Final = 5
"""5: replies of a turn are keys, and a delta says the new ones. 4: a delta is what came of its
steps. 3: the newest seq of a key. 2: the hash of a submission is no longer one of its facts."""


class Piece(msgspec.Struct, array_like=True):
    """What came behind the event `after`: in a base, whose `after` is 0, all of a state.

    ids, keys, newest, journal: in a base sorted, and whole. parents: seq, parent seq, seq, parent
    seq ... of entries whose parent is not the one before. keys: of a key, and of a type and a key
    (`step.key_name`), the first seq; newest: the newest one, of those that came again.
    """

    version: int
    after: int
    last_seq: int
    leaf: str | None
    ids: SeqsBlock
    parents: list[int]
    keys: SeqsBlock
    newest: SeqsBlock
    journal: JournalPack


class _Version(msgspec.Struct, array_like=True):
    """The first field of a piece, whatever follows."""

    version: int


_pieces: Final = Packing(Piece, "snapshot")
_versions: Final = Packing(_Version, "snapshot")


def encode_piece(
    after: int,
    last_seq: int,
    leaf: str | None,
    ids: SeqsBlock,
    parents: list[int],
    keys: SeqsBlock,
    newest: SeqsBlock,
    journal: JournalPack,
) -> bytes:
    """The bytes of a base or a delta."""
    piece = Piece(PIECE_VERSION, after, last_seq, leaf, ids, parents, keys, newest, journal)
    return _pieces.encode(piece)


def decode_piece(encoded: bytes) -> Piece:
    """Raises FormatError for any other bytes, and for another version."""
    version = _versions.decode(encoded).version
    if version != PIECE_VERSION:
        raise FormatError(f"snapshot has version {version}, limit {PIECE_VERSION}")
    return _pieces.decode(encoded)
