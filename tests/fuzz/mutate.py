"""Plain mutation, for where atheris is not installed: seeds cut, flipped, joined, repeated."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from .corpus import INPUT_BYTES_MAX

__all__ = ["mutated"]

INTERESTING = (
    b"\x00", b"\x7f", b"\x80", b"\xc0", b"\xc1", b"\xff", b"\x90", b"\x91", b"\x9f", b"\x80\x80",
    b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\x7f\xff\xff",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xed\xa0\xbd", b"\xfe\xb1", b"\x1b[2J", b"\xc4\x00", b"\xa0", bytes(28),
)  # fmt: skip


def mutated(seeds: Sequence[bytes], random: Random) -> bytes:
    """Another input, out of one or two of these."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 3, 5, 9))):
        at = random.randrange(len(data) + 1)
        what = random.randrange(8)
        if what == 0 and data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        elif what == 1 and data:
            data[at % len(data)] = random.randrange(256)
        elif what == 2:
            data[at:at] = random.choice(INTERESTING)
        elif what == 3:
            data[at : at + random.randrange(1, 9)] = random.choice(INTERESTING)
        elif what == 4:
            del data[at : at + random.randrange(1, 33)]
        elif what == 5:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[at:at] = other[start : start + random.randrange(1, 129)]
        elif what == 6:
            data[at:at] = data[at : at + random.randrange(1, 65)] * random.randrange(1, 5)
        else:
            data[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(data[:INPUT_BYTES_MAX])
