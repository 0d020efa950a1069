"""Makes a long answer to Events a page at a time, while it is sent.

Owns: its bytes, those of the array that a short one is. Refuses: where the lines stand
(`ledger/runs.py`), sockets and their readers (`server.py`).

The array begins with the count of its lines, so a first reading of the file counts them and keeps
where they stand; a second one gives them, behind what the reader has taken.

Invariant
- Q3 An answer holds so many bytes at most, however long the session is; what it began as it ends
  as, or with an Error.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from walld import limits
from walld.errors import FormatError, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.session_store.files import Lines
    from walld.ledger.runs import Run

__all__ = ["PagedLines"]

_encode = msgspec.msgpack.Encoder().encode
_ARRAY_OF_TWO = b"\x92"


class PagedLines:
    """An answer on its way. page: reads the first lines of a run, and gives the run behind them."""

    def __init__(
        self,
        found: Lines,
        breaks: bytes | None,
        page: Callable[[Run], Awaitable[tuple[list[bytes], Run | None]]],
    ) -> None:
        """breaks: those of `found` as JSON, where they were asked for."""
        self.held_bytes = limits.ANSWER_PAGED_BYTES + sum(map(len, found.lines))
        self._page = page
        self._runs = deque(found.runs)
        self._lines = found.lines
        begin = b"" if breaks is None else _ARRAY_OF_TWO
        self._begin = begin + _array_begin(found.total)
        self._end = b"" if breaks is None else _encode(breaks)

    async def piece(self) -> bytes:
        """What comes next, b"" behind the end. Refusal where the file has no more what it had."""
        if self._begin:
            begin, self._begin = self._begin, b""
            return begin
        if self._runs:
            try:
                lines, behind = await self._page(self._runs[0])
            except (FileNotFoundError, FormatError) as error:
                raise Refusal("behind", f"{error}: ask again") from None
            if behind is None:
                self._runs.popleft()
            else:
                self._runs[0] = behind
            return b"".join(map(_encode, lines))
        lines, self._lines = self._lines, []
        end, self._end = self._end, b""
        return b"".join([*map(_encode, lines), end])


def _array_begin(count: int) -> bytes:
    """Of a msgpack array: as the encoder writes it."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")
