"""Server-sent events: bytes in any split to whole events. Sans-IO.

Owns: lines, fields, and what a blank line completes, as the WHATWG's HTML standard has them
("event stream interpretation"). Refuses: what an event means (`body.py`).

Invariant: how the body was cut into chunks changes nothing. An event that no blank line completes
is none, as the SDKs have it: they do not hand it on either.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SseParser"]

EVENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest event that is waited for. A Responses body repeats the whole answer in its last event,
images included; beyond this it is not an answer."""

_BOM: Final = b"\xef\xbb\xbf"


class SseParser:
    """One body. `feed` gives the events each chunk completes, as (name, data)."""

    __slots__ = ("_after_cr", "_is_first", "_name", "_rest", "_waiting", "_waiting_bytes")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Pieces of a line whose end has not come; joined once, so that a long line costs its
        length however small the chunks are."""
        self._waiting: list[bytes] = []
        """The data lines of the event under way."""
        self._name = b""
        self._waiting_bytes = 0
        self._after_cr = False
        self._is_first = True

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """The events that `chunk` completes. ValueError beyond EVENT_BYTES_MAX without one."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):  # the second half of a line end
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            if chunk:
                self._keep(chunk)
            return []
        if self._rest:
            chunk = b"".join([*self._rest, chunk])
            self._rest.clear()
        if self._is_first:
            self._is_first = False
            chunk = chunk.removeprefix(_BOM)
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # of bytes: LF, CR and CRLF, nothing else
        if not self._after_cr and not chunk.endswith(b"\n"):
            self._keep(lines.pop())
        return self._events(lines)

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > EVENT_BYTES_MAX:
            raise ValueError(
                f"an event of more than {EVENT_BYTES_MAX} bytes: {self._waiting_bytes} are waiting"
            )

    def _events(self, lines: list[bytes]) -> list[tuple[bytes, bytes]]:
        found = []
        waiting = self._waiting
        for line in lines:
            if line.startswith(b"data:"):
                waiting.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line:
                if waiting:
                    found.append((self._name, b"\n".join(waiting)))
                    waiting.clear()
                self._name = b""
                self._waiting_bytes = 0
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ")
            # ids, retry times and comments (a colon first) say nothing of a reply
        return found
