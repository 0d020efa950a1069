"""Parses server-sent events from bytes in any split. No I/O.

Owns: lines, fields, and what a blank line completes, as the SDKs of openai and anthropic have them.
Refuses: what an event means (`body.py`).

Invariant: how the body was cut into chunks changes nothing. An event that no blank line completes
is none: they do not hand it on either.

They differ from the WHATWG's HTML standard ("event stream interpretation") in two things, and what
the program gets is what counts. A byte order mark is part of the first line, whose field nobody
knows then: the first event is lost. And an event without data is one, if it has a name or a retry
time, or if any before it had an id. And they raise at a line that is no UTF-8, whatever its field:
`NO_TEXT` stands for it, at once (openai's) and where its event ends (anthropic's).
"""

from __future__ import annotations

from typing import Final

__all__ = ["NO_TEXT", "Event", "SseParser"]

EVENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest event that is waited for. A Responses body repeats the whole answer in its last event,
images included; beyond this it is not an answer."""

Event = tuple[bytes | None, bytes]
"""Name and data. None: no line named it, which is not the same as an empty name."""
NO_TEXT: Final[Event] = (b"\xff", b"")


class SseParser:
    """One body. `feed` gives the events each chunk completes, as (name, data)."""

    __slots__ = (
        "_after_cr",
        "_has_id",
        "_has_retry",
        "_is_broken",
        "_name",
        "_rest",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Pieces of a line whose end has not come; joined once, so that a long line costs its
        length however small the chunks are."""
        self._waiting: list[bytes] = []
        """The data lines of the event under way."""
        self._name: bytes | None = None
        self._waiting_bytes = 0
        self._after_cr = False
        self._has_id = False
        """Of the body: an id stays."""
        self._has_retry = False
        self._is_broken = False
        """A line of the event under way is no text."""

    def feed(self, chunk: bytes) -> list[Event]:
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
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # of bytes: LF, CR and CRLF, nothing else
        if not self._after_cr and not chunk.endswith(b"\n"):
            self._keep(lines.pop())
        return self._events(lines, chunk.isascii() or _is_text(chunk))

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > EVENT_BYTES_MAX:
            raise ValueError(
                f"an event of more than {EVENT_BYTES_MAX} bytes: {self._waiting_bytes} are waiting"
            )

    def _events(self, lines: list[bytes], are_text: bool) -> list[Event]:
        found: list[Event] = []
        waiting = self._waiting
        for line in lines:
            if not are_text and not _is_text(line):
                found.append(NO_TEXT)
                self._is_broken = True
            elif line.startswith(b"data:"):
                waiting.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif not line:
                if self._is_broken:
                    found.append(NO_TEXT)
                    waiting.clear()
                    self._name = None
                    self._is_broken = False
                elif waiting or self._name or self._has_id or self._has_retry:
                    found.append((self._name, b"\n".join(waiting)))
                    waiting.clear()
                    self._name = None
                self._has_retry = False
                self._waiting_bytes = 0
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ")
            elif not line.startswith(b":"):  # a comment
                self._field(line)
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":  # without a colon, and so is the next one
            self._name = value
        elif name == b"data":
            self._waiting.append(value)
        elif name == b"id" and b"\0" not in value:
            self._has_id = bool(value)
        elif name == b"retry" and value.isdigit():
            self._has_retry = True


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
