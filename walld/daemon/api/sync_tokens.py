"""Sync tokens: clients show a restarted daemon what they were told is synced.

A sync token is what the wire calls a receipt (PROTOCOL.md, "Receipts").

Owns: what a receipt says, and whether the session has that. Refuses: the session
(`open_sessions.py`), where an entry of it goes (`engine/session_log.py`), deletes
(`ledger/deleted.py`).

The end of a log can go without a trace. Of a reply its agent knows, and says so in Resume. Of a
session whoever appended to it knows: each answer to an Append that is synced brings a receipt, and
a client shows its last one of a session to each daemon it finds.

A line is told by its chain, which is a hash of it and of all before it: whether that line is here
is no question of numbers, which a daemon that knew of nothing gives again.

Invariants
- M1 Nothing is called lost that is here, that was deleted, or of which a break tells already.
- M2 What is lost the session itself says from then on: a hole, and an entry behind it that names
  the receipt, once for each. A line that never got to the disk is said again to who shows it again.
"""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from walld_client.wire import messages as wire

from walld import limits
from walld.daemon import event_loop
from walld.errors import FormatError, Refusal
from walld.ledger.line import CHAIN_BYTES, chain_of, line_seq
from walld.sessions.state.entries import check_id, free_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.session_store.open_sessions import Sessions
    from walld.engine.engine import Engine
    from walld.engine.session_log import SessionLog
    from walld.engine.stream import Connection
    from walld.ledger.deleted import Deleted

__all__ = ["SyncTokens"]

_RECEIPT = struct.Struct(f">8sQQ{CHAIN_BYTES}s")
"""In this order a later one of the same daemon is greater as bytes."""
_SEQ_MAX = 1 << 53


class _Receipt(NamedTuple):
    """daemon: names the one that gave it. deletes: how many there had been. seq, chain: of the
    last line of the session then.
    """

    daemon: bytes
    deletes: int
    seq: int
    chain: bytes


class SyncTokens:
    """Those of one daemon."""

    def __init__(
        self,
        engine: Engine,
        sessions: Sessions,
        deleted: Deleted,
        wall_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._deleted = deleted
        self._wall_ms = wall_ms
        self._daemon = b""
        """Made for the first receipt."""
        self.answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            wire.Attest: self._attest
        }

    def of(self, ledger: SessionLog) -> bytes:
        """What who appended just now is told once that is synced."""
        self._daemon = self._daemon or self._named()
        return _RECEIPT.pack(self._daemon, self._deleted.count, ledger.last_seq, ledger.chain)

    def _named(self) -> bytes:
        """As no other daemon is: of a copy of the directory that is put back the epoch comes again,
        the time does not.
        """
        numbers = f"{self._engine.epoch} {self._wall_ms()}".encode()
        return sha256(self._engine.log_uuid + numbers).digest()[:8]

    async def _attest(self, connection: Connection, request: wire.Attest) -> bool:
        uid, session_id = connection.uid, request.session_id
        check_id("session_id", session_id)
        receipt = _read(request.receipt)
        if receipt.daemon == self._daemon or not receipt.seq:
            return False
        if await self._is_told(uid, session_id, receipt):
            return False
        self._engine.batches.check_open()
        if self._engine.disk_full:
            raise Refusal("disk_full", "the disk is full: what is lost is said later")
        ledger = await self._sessions.open(uid, session_id, create=True)
        assert ledger is not None
        assert ledger.state is not None
        # In one step from here on: neither an append nor a delete comes between.
        key = f"lost:{receipt.seq}:{receipt.chain.hex()}"
        is_said = ledger.state.seq_of_key(key, "lost") is not None
        if is_said or self._deleted.since(receipt.deletes, uid, session_id):
            return False
        self._say(ledger, receipt, key)
        return True

    async def _is_told(self, uid: int, session_id: str, receipt: _Receipt) -> bool:
        """The line is here; or a break of the session tells of it."""
        ledger = await self._sessions.open(uid, session_id)
        if ledger is None or receipt.seq > ledger.last_seq:
            return False
        if receipt.chain == ledger.chain:
            return True
        try:
            found = await self._sessions.lines(uid, session_id, receipt.seq - 1, 1)
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None
        if found is None:
            return False
        line = next((one for one in found.lines if line_seq(one) == receipt.seq), None)
        return line is None or chain_of(line) == receipt.chain

    def _say(self, ledger: SessionLog, receipt: _Receipt, key: str) -> None:
        """Leave out as many seqs as are known to be lost, one at least, and say so behind them."""
        first_seq = ledger.last_seq + 1
        last_seq = max(first_seq, min(receipt.seq, first_seq + limits.LEDGER_LOST_MAX - 1))
        self._engine.session_logs.leap(ledger, last_seq)
        assert ledger.state is not None
        lost = {"first_seq": first_seq, "last_seq": last_seq, "told_seq": receipt.seq}
        name = free_id(ledger.state, f"lost:{last_seq}")
        entry = wire.NewEntry("lost", json.dumps(lost).encode(), name, key=key, leaf=False)
        self._engine.session_logs.append(
            ledger, [entry], None, None, self._wall_ms(), event_loop.now()
        )
        self._engine.lost_acked.count(
            ledger.uid, ledger.session_id, first_seq, last_seq, kind="session"
        )
        self._sessions.wake()


def _read(data: bytes) -> _Receipt:
    if len(data) != _RECEIPT.size:
        got, limit = f"{len(data)} bytes", f"{_RECEIPT.size} bytes"
        raise Refusal("bad_argument", "receipt is none that a daemon gave", got, limit)
    receipt = _Receipt(*_RECEIPT.unpack(data))
    if receipt.seq > _SEQ_MAX:
        raise Refusal("bad_argument", "receipt has a seq that no line has", receipt.seq, _SEQ_MAX)
    return receipt
