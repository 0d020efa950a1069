"""A session's state as bytes: a base, and steps that lead on from it.

Owns: `Step`, what of an event the state needs to know, and the encodings. Refuses: what a step does
(`state.py`), files, when a base is written anew (the daemon).

Invariants: never the truth. A snapshot that cannot be read is a FormatError, and whoever asked
folds the events instead. Parents are said only where an entry does not
hang on the one before it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from walld.errors import FormatError
from walld.sessions.hashed import SeqsBlock
from walld.sessions.journal import JournalPack
from walld.sessions.packed import Packing

__all__ = [
    "Base",
    "Step",
    "decode_base",
    "decode_steps",
    "encode_base",
    "encode_steps",
    "key_name",
    "key_names",
]

BASE_VERSION: Final = 3
"""3: the newest seq of a key. 2: the hash of a submission is no longer one of its facts."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of an event the state needs.

    back: how many seqs its parent stands before it, its seq for none. stays: it does not become the
    leaf. moves_to: where a move of the leaf leads, None before the first entry. type, turn, facts,
    hash, owner: only of turns, tools and keys.
    """

    id: str = msgspec.field(name="i")
    seq: int = msgspec.field(name="s")
    back: int = msgspec.field(name="b", default=1)
    stays: bool = msgspec.field(name="l", default=False)
    moves_to: str | msgspec.UnsetType | None = msgspec.field(name="m", default=msgspec.UNSET)
    type: str | None = msgspec.field(name="y", default=None)
    key: str | None = msgspec.field(name="k", default=None)
    turn: str | None = msgspec.field(name="t", default=None)
    facts: dict[str, Any] = msgspec.field(name="f", default_factory=dict)
    hash: bytes = msgspec.field(name="h", default=b"")
    owner: dict[str, Any] | None = msgspec.field(name="o", default=None)


class Base(msgspec.Struct, array_like=True):
    """All of a state.

    parents: seq, parent seq, seq, parent seq ... of entries whose parent is not the one before.
    keys: of a key, and of a type and a key (`key_name`), the first seq; newest: the newest one, of
    those that came again.
    """

    version: int
    last_seq: int
    leaf: str | None
    ids: SeqsBlock
    parents: list[int]
    keys: SeqsBlock
    newest: SeqsBlock
    journal: JournalPack


_bases: Final = Packing(Base, "snapshot")
_steps: Final = Packing(list[Step], "delta")


def encode_base(base: Base) -> bytes:
    """The bytes of a base."""
    return _bases.encode(base)


def decode_base(encoded: bytes) -> Base:
    """Raises FormatError for any other bytes, and for another version."""
    version = _versions.decode(encoded).version
    if version != BASE_VERSION:
        raise FormatError(f"snapshot has version {version}, limit {BASE_VERSION}")
    return _bases.decode(encoded)


def encode_steps(steps: list[Step]) -> bytes:
    """The bytes of a delta."""
    return _steps.encode(steps)


def decode_steps(encoded: bytes) -> list[Step]:
    """Raises FormatError for any other bytes."""
    return _steps.decode(encoded)


class _Version(msgspec.Struct, array_like=True):
    """The first field of a base, whatever follows."""

    version: int


_versions: Final = Packing(_Version, "snapshot")


def key_name(key: str, type: str | None) -> str:  # noqa: A002
    """What a key is found by, of any type or of one. No type has a zero in it."""
    return f"{type or ''}\0{key}"


def key_names(step: Step) -> tuple[str, ...]:
    """All that the key of a step is found by."""
    if step.key is None:
        return ()
    return key_name(step.key, None), key_name(step.key, step.type)
