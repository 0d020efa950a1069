"""Handles the daemon's acks and notices on an agent's connection.

Owns: the meaning of Welcome, Ack, Refused, Drained and Error. Refuses: sockets (the link gives it
bytes), the lock (the link holds it).

None of it is waited for: the words are read in the chores, before `durable_seq` is answered,
while somebody waits for a drain, and once more when the connection ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from walld_client.limits import TEXT_BYTES_MAX
from walld_client.link.registry import Registry
from walld_client.link.stream import Stream
from walld_client.wire import framing
from walld_client.wire.messages import Ack, Drained, Error, Refused, ToAgent, Welcome

__all__ = ["DRAIN_LEVELS", "AckHandler", "Drain"]

DRAIN_LEVELS = ("written", "synced", "replicated")
"""From the least to the most; a daemon that does not replicate refuses the last."""
_log = logging.getLogger("walld")
_REMEDIES = {
    "stream_owned": "another reply of this stream_id is not released: release it first (resolve it"
    " once its process is gone), or give each reply an id of its own",
    "stream_exists": "an earlier reply of this stream_id is kept, and its process is gone: resolve"
    " it first, or give each reply an id of its own",
}
"""What to do about a Start that is refused. Each of these is said, others once a code."""
_decoder = msgspec.msgpack.Decoder(ToAgent)


class Drain(NamedTuple):
    """Somebody who waits until all that was sent so far is at `level`."""

    level: str
    done: Callable[[bool], None]


class AckHandler:
    """State that only the daemon's words change.

    log, synced_no: what the next Hello attests. welcomed: the daemon at the other end answered
    since the last `start`. fatal: the code of an Error, after which the connection is of no use.
    """

    __slots__ = (
        "_registry",
        "_rest",
        "_told_codes",
        "_told_error",
        "drains",
        "fatal",
        "log",
        "refused_events",
        "refused_replies",
        "synced_no",
        "text_bytes_max",
        "welcomed",
    )

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._rest = b""
        self._told_codes: set[str] = set()
        self._told_error = ""
        """Its code, until a daemon lets this client in: each further try would be told the same."""
        self.drains: dict[int, Drain] = {}
        self.fatal = ""
        self.log = b""
        self.synced_no = 0
        self.refused_events = 0
        self.refused_replies = 0
        self.text_bytes_max = TEXT_BYTES_MAX
        self.welcomed = False

    def start(self) -> None:
        """A new connection: nothing was heard on it yet."""
        self._rest = b""
        self.fatal = ""
        self.welcomed = False

    def feed(self, received: bytes) -> None:
        """Bytes from the daemon. What cannot be understood sets `fatal`."""
        try:
            bodies, self._rest = framing.split(self._rest + received)
            for body in bodies:
                self._heard(_decoder.decode(body))
        except framing.UNREADABLE as error:
            _log.warning("walld sent what this client cannot read, reconnecting: %s", error)
            self.fatal = "unreadable"

    def _heard(self, message: Welcome | Ack | Drained | Refused | Error) -> None:
        if isinstance(message, Ack):
            self._acked(message)
        elif isinstance(message, Welcome):
            self.welcomed, self._told_error = True, ""
            self.text_bytes_max = max(1024, message.text_bytes_max)
        elif isinstance(message, Refused):
            self._refused(message)
        elif isinstance(message, Drained):
            self._drained(message)
        else:
            self._failed(message)

    def _acked(self, ack: Ack) -> None:
        self.welcomed = True
        if ack.log != self.log:
            self.log = ack.log
            self.synced_no = 0
        self.synced_no = max(self.synced_no, ack.synced_no)
        for number, _written, synced in ack.streams:
            stream = self._registry.by_number.get(number)
            if stream is not None and synced > stream.synced:
                stream.synced = min(synced, stream.next_seq - 1)
                if stream.terminal:
                    self._registry.tidy(stream)

    def _refused(self, refused: Refused) -> None:
        self.refused_events += 1
        stream = self._registry.by_number.get(refused.stream)
        self._tell(refused, stream)
        if refused.stream == 0:  # not a stream: a Drain of a level this daemon does not have
            drain = self.drains.pop(refused.seq, None)
            if drain is not None:
                drain.done(False)
            return
        if stream is None:
            return
        if stream.refusal is None or refused.seq == 0:
            stream.refusal = refused.code, refused.got, refused.limit
        if refused.code != "disk_full":  # another daemon, or this one later, may have room for it
            stream.refused.add(refused.seq)
        stream.lose(refused.seq, refused.seq)
        if refused.seq == 0 and not stream.gone:
            self.refused_replies += 1
            stream.stop_sending()
            self._registry.refused(stream)
        self._registry.tidy(stream)

    def _tell(self, refused: Refused, stream: Stream | None) -> None:
        """One line: which reply, why, and what to do."""
        remedy = _REMEDIES.get(refused.code) if refused.seq == 0 and stream is not None else None
        if remedy is not None and stream is not None:
            if not stream.gone:
                _log.warning(
                    "walld refused reply %r of session %r, nothing of it is kept: %s "
                    "(code %s, got %s, limit %s)",
                    stream.stream_id,
                    stream.session_id,
                    remedy,
                    refused.code,
                    refused.got,
                    refused.limit,
                )
            return
        if refused.code not in self._told_codes:
            self._told_codes.add(refused.code)
            _log.warning(
                "walld refused event %d of reply %r (code %s, got %s, limit %s); "
                "further refusals with this code are counted, not logged",
                refused.seq,
                refused.stream if stream is None else stream.stream_id,
                refused.code,
                refused.got,
                refused.limit,
            )

    def _drained(self, drained: Drained) -> None:
        drain = self.drains.pop(drained.id, None)
        if drain is not None:
            drain.done(_rank(drained.level) >= _rank(drain.level))

    def _failed(self, error: Error) -> None:
        self.fatal = error.code
        if error.code == self._told_error:
            return
        self._told_error = error.code
        _log.warning(
            "walld ended the connection: %s (code %s, got %s, limit %s)",
            error.message,
            error.code,
            error.got,
            error.limit,
        )


def _rank(level: str) -> int:
    return DRAIN_LEVELS.index(level) if level in DRAIN_LEVELS else -1
