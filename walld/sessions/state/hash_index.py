"""Hash indexes that load as one block, for everything a session has seen.

Owns: `Seqs` (name -> seq) and `Records` (name -> bytes), each a sorted block of hashes beside what
changed since. Refuses: giving the names back; the ledger has them.

Invariants: a block is read by bisection and never taken apart, so loading costs a copy and not an
object a name. What came since a block is a block of its own, in any order (`Seqs.since`,
`records_since`), and is added to a table without hashing a name. 64 bits of SHA-256 stand for a
name: two names of one session that share them (one in 10^9 sessions of 100,000 names, by chance)
count as one. The block of a table is sorted: the same content is the same bytes. Bytes of another
machine's order are refused.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from functools import lru_cache
from heapq import merge
from itertools import accumulate, chain
from operator import sub
from typing import TYPE_CHECKING, Final

import msgspec

from walld.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Records", "RecordsBlock", "Seqs", "SeqsBlock", "records_since"]

_ORDER: Final = array("Q", [1]).tobytes() + array("I", [1]).tobytes()
_SORTED_AT_ONCE: Final = 10_000


class SeqsBlock(msgspec.Struct, array_like=True, frozen=True):
    """Hashes, and the seq of each. order: how this machine writes 1.

    As views: a block of megabytes is read where it stands, and copied once.
    """

    hashes: memoryview
    seqs: memoryview
    order: bytes = _ORDER


class RecordsBlock(msgspec.Struct, array_like=True, frozen=True):
    """Hashes, where the record of each ends, and the records."""

    hashes: memoryview
    ends: memoryview
    records: memoryview
    order: bytes = _ORDER


class Seqs:
    """Name -> seq; the newest one where a name is set again."""

    __slots__ = ("_hashes", "_new", "_seqs", "_since")

    def __init__(self, block: SeqsBlock | None = None) -> None:
        self._new: dict[int, int] = {}
        """By hash."""
        self._since: dict[int, int] = {}
        """The part of it that was set since all of it, or what came since, was taken last."""
        self._hashes, self._seqs = array("Q"), array("I")
        if block is not None:
            self._hashes, self._seqs = _loaded_seqs(block)

    def __len__(self) -> int:
        return len(self._hashes) + len(self._new)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __getitem__(self, name: str) -> int:
        seq = self.get(name)
        if seq is None:
            raise KeyError(name)
        return seq

    def __setitem__(self, name: str, seq: int) -> None:
        hashed = _hash(name)
        self._new[hashed] = self._since[hashed] = seq

    def __delitem__(self, name: str) -> None:
        """Only of what is in no block."""
        hashed = _hash(name)
        del self._new[hashed]
        del self._since[hashed]

    def get(self, name: str) -> int | None:
        """The seq of a name, None where it is not there."""
        if not self._new and not self._hashes:
            return None
        hashed = _hash(name)
        seq = self._new.get(hashed)
        if seq is None and self._hashes:
            at = _found(self._hashes, hashed)
            seq = None if at < 0 else self._seqs[at]
        return seq

    def add(self, block: SeqsBlock) -> None:
        """What `since` gave: new names, and others set again."""
        self._new.update(zip(*_loaded_seqs(block), strict=True))

    def forget_since(self) -> None:
        """Nobody takes what was set since."""
        self._since = {}

    def since(self) -> SeqsBlock:
        """What was set since this, or all of it, was taken last; names are not hashed again."""
        since, self._since = self._since, {}
        return _seqs_block(array("Q", since), array("I", since.values()))

    def block(self) -> SeqsBlock:
        """All of it; what was new is part of the block from now on."""
        self._since.clear()
        if self._new:
            hashes, seqs, begin = array("Q"), array("I"), 0
            for pair in _sorted([hashed << 32 | seq for hashed, seq in self._new.items()]):
                key = pair >> 32
                at = bisect_left(self._hashes, key, begin)
                hashes += self._hashes[begin:at]
                seqs += self._seqs[begin:at]
                hashes.append(key)
                seqs.append(pair & 0xFFFFFFFF)
                begin = at + (self._hashes[at : at + 1] == array("Q", [key]))
            self._hashes, self._seqs = hashes + self._hashes[begin:], seqs + self._seqs[begin:]
            self._new.clear()
        return _seqs_block(self._hashes, self._seqs)


class Records:
    """Name -> bytes, never changed in place."""

    __slots__ = ("_ends", "_hashes", "_new", "_records")

    def __init__(self, block: RecordsBlock | None = None) -> None:
        self._new: dict[int, bytes] = {}
        """By hash."""
        self._hashes, self._ends, self._records = array("Q"), array("I"), b""
        if block is not None:
            self._hashes, self._ends = _loaded_ends(block)
            self._records = bytes(block.records)

    def __setitem__(self, name: str, record: bytes) -> None:
        self._new[_hash(name)] = record

    def get(self, name: str) -> bytes | None:
        """The record of a name, None where it is not there."""
        if not self._new and not self._hashes:
            return None
        hashed = _hash(name)
        record = self._new.get(hashed)
        if record is None and self._hashes:
            at = _found(self._hashes, hashed)
            record = None if at < 0 else self._between(at, at + 1)
        return record

    def add(self, block: RecordsBlock) -> None:
        """What `records_since` gave: new names, and others set again."""
        hashes, ends = _loaded_ends(block)
        begins = chain((0,), ends)
        whole = bytes(block.records)
        records = [whole[begin:end] for begin, end in zip(begins, ends, strict=False)]
        self._new.update(zip(hashes, records, strict=True))

    def block(self) -> RecordsBlock:
        """All of it; what was new is part of the block from now on."""
        if self._new:
            sizes, old_ends = array("I"), self._ends
            old_sizes = array("I", map(sub, old_ends, chain((0,), old_ends)))
            hashes, records, begin = array("Q"), [], 0
            for key in sorted(self._new):
                at = bisect_left(self._hashes, key, begin)
                hashes += self._hashes[begin:at]
                sizes += old_sizes[begin:at]
                records += [self._between(begin, at), self._new[key]]
                hashes.append(key)
                sizes.append(len(self._new[key]))
                begin = at + (self._hashes[at : at + 1] == array("Q", [key]))
            records.append(self._between(begin, len(old_ends)))
            self._hashes = hashes + self._hashes[begin:]
            self._ends = array("I", accumulate(sizes + old_sizes[begin:]))
            self._records = b"".join(records)
            self._new.clear()
        return _records_block(self._hashes, self._ends, self._records)

    def _between(self, first: int, stop: int) -> bytes:
        """Records one behind the other."""
        begin = self._ends[first - 1] if first else 0
        return self._records[begin : self._ends[stop - 1]] if stop > first else b""


def records_since(named: dict[str, bytes]) -> RecordsBlock:
    """Names and their records as a block."""
    hashes = array("Q", map(_hash, named))
    ends = array("I", accumulate(map(len, named.values())))
    return _records_block(hashes, ends, b"".join(named.values()))


@lru_cache(maxsize=8192)
def _hash(name: str) -> int:
    """One append asks for the same few names a dozen times."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8])


def _sorted(pairs: list[int]) -> Iterable[int]:
    """A piece at a time: one sort of 100,000 holds the interpreter's lock for all of it."""
    if len(pairs) <= _SORTED_AT_ONCE:
        return sorted(pairs)
    pieces = [pairs[at : at + _SORTED_AT_ONCE] for at in range(0, len(pairs), _SORTED_AT_ONCE)]
    return merge(*map(sorted, pieces))


def _found(hashes: array[int], wanted: int) -> int:
    at = bisect_left(hashes, wanted)
    return at if at < len(hashes) and hashes[at] == wanted else -1


def _seqs_block(hashes: array[int], seqs: array[int]) -> SeqsBlock:
    return SeqsBlock(memoryview(hashes.tobytes()), memoryview(seqs.tobytes()))


def _records_block(hashes: array[int], ends: array[int], records: bytes) -> RecordsBlock:
    tables = memoryview(hashes.tobytes()), memoryview(ends.tobytes())
    return RecordsBlock(*tables, memoryview(records))


def _loaded_seqs(block: SeqsBlock) -> tuple[array[int], array[int]]:
    hashes = _loaded("Q", block.hashes, block.order)
    seqs = _loaded("I", block.seqs, block.order)
    if len(hashes) != len(seqs):
        raise FormatError(f"{len(hashes)} hashes stand for {len(seqs)} seqs")
    return hashes, seqs


def _loaded_ends(block: RecordsBlock) -> tuple[array[int], array[int]]:
    hashes = _loaded("Q", block.hashes, block.order)
    ends = _loaded("I", block.ends, block.order)
    end = ends[-1] if ends else 0
    if len(hashes) != len(ends) or end != len(block.records):
        raise FormatError(f"{len(block.records)} bytes of records, limit {end}")
    return hashes, ends


def _loaded(kind: str, packed: memoryview, order: bytes) -> array[int]:
    loaded: array[int] = array(kind)
    if order != _ORDER or len(packed) % loaded.itemsize:
        raise FormatError(f"a block of {len(packed)} bytes is not of this machine's numbers")
    loaded.frombytes(packed)
    return loaded
