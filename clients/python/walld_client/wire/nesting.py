"""Measures how deep msgpack nests, without decoding it.

Owns: the walk. Refuses: deciding what is too deep for whom. Sans-IO.

Why: a decoder that calls itself for each level needs stack for each. In a thread with a small one
(musl's default is 128 kB) 20,000 levels, as many bytes, end the process (msgspec issue 1033).
"""

from __future__ import annotations

__all__ = ["nests_deeper"]

_CONTAINERS = (*range(0x80, 0xA0), *range(0xDC, 0xE0))
_OTHERS = bytes(head for head in range(256) if head not in _CONTAINERS)
_SKIPPED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
"""Bytes behind the head of what has a fixed length."""
_MEASURED = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
"""(bytes of its length, bytes of its type) of bin, ext and str."""
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""(bytes of its count, values for each) of array and map."""


def nests_deeper(packed: bytes, limit: int) -> bool:
    """True where arrays and maps stand in each other deeper than `limit`.

    What is cut or no msgpack is walked as far as it goes.
    """
    if len(packed.translate(None, _OTHERS)) <= limit:
        return False  # not even that many bytes that could begin one: nearly every value
    left = [1]
    at, end = 0, len(packed)
    while left and at < end:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        values, at = _step(packed, at)
        if values:
            left.append(values)
            if len(left) > limit + 1:
                return True
    return False


def _step(packed: bytes, at: int) -> tuple[int, int]:
    """One head: (values that stand in it, where the next head is)."""
    head = packed[at]
    at += 1
    if 0x80 <= head <= 0x9F:
        return (head & 15) * (2 if head < 0x90 else 1), at
    if 0xA0 <= head <= 0xBF:
        return 0, at + (head & 31)
    if head in _COUNTED:
        size, each = _COUNTED[head]
        return int.from_bytes(packed[at : at + size], "big") * each, at + size
    if head in _MEASURED:
        size, kind = _MEASURED[head]
        return 0, at + size + kind + int.from_bytes(packed[at : at + size], "big")
    return 0, at + _SKIPPED.get(head, 0)
