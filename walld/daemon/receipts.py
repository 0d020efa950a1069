"""Receipts: what a client was told of a session is synced, given back by it after a start.

Owns: what a receipt says, and what is missing of it. Refuses: the session (`sessions.py`), where an
entry of it goes (`engine/ledgers.py`).

A batch at the very end of the log can go without a trace: no later one says that it was there. Of
a reply its agent knows, and says so in Resume. Of a session whoever appended to it knows: each
answer to an Append that is synced brings a receipt, and a client shows its last one of a session to
each daemon it finds, before it asks for anything there.

Invariants
- M1 A receipt is doubted, not the log: one of this daemon's own, of another log, or of a batch that
  this start has found (read, or known to be damaged) says nothing, and a deleted session lost none.
- M2 What is lost is said from then on by the session itself: the next line stands behind it, and
  names it. Whoever showed the receipt is answered once that is synced.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from walld_client.wire import messages as wire

from walld import limits
from walld.daemon import loop
from walld.engine.entries import check_id, free_id
from walld.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.sessions import Sessions
    from walld.engine.engine import Engine
    from walld.engine.peer import Connection

__all__ = ["Receipts"]

_RECEIPT = struct.Struct(">16sQQQ")
_DELETED_MAX = 4096


class _Receipt(NamedTuple):
    """Told by the daemon of that epoch: all up to that batch is synced, and with it that seq."""

    log: bytes
    epoch: int
    batch_no: int
    seq: int


class Receipts:
    """Those of one daemon."""

    def __init__(self, engine: Engine, sessions: Sessions, wall_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._wall_ms = wall_ms
        self._deleted: dict[tuple[int, str], None] = {}
        """Sessions that were deleted since the start, the newest."""
        self.answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            wire.Attest: self._attest
        }

    def of(self, request: wire.Append, last_seq: int) -> bytes:
        """For the answer to an append, which came as far as it waits for; b"" where not synced.

        last_seq: of its session when it was taken. What was there already is in no later batch.
        """
        if request.level != "synced":
            return b""
        engine = self._engine
        return _RECEIPT.pack(engine.log_uuid, engine.epoch, engine.sealing.synced_no, last_seq)

    def deleted(self, uid: int, session_id: str) -> None:
        """Nothing of that session is lost, from now on."""
        self._deleted.pop((uid, session_id), None)
        self._deleted[uid, session_id] = None
        if len(self._deleted) > _DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]

    async def _attest(self, connection: Connection, request: wire.Attest) -> bool:
        engine, uid, session_id = self._engine, connection.uid, request.session_id
        check_id("session_id", session_id)
        if len(request.receipt) != _RECEIPT.size:
            got, limit = f"{len(request.receipt)} bytes", f"{_RECEIPT.size} bytes"
            raise Refusal("bad_argument", "receipt is none that a daemon gave", got, limit)
        receipt = _Receipt(*_RECEIPT.unpack(request.receipt))
        told_by_another = receipt.log == engine.log_uuid and receipt.epoch != engine.epoch
        if not told_by_another or receipt.batch_no <= engine.attested.found_no:
            return False
        engine.attested.attest(receipt.batch_no)
        ledger = await self._sessions.open(uid, session_id, create=True)
        assert ledger is not None
        first_seq, last_seq = ledger.last_seq + 1, receipt.seq
        if (uid, session_id) in self._deleted or last_seq < first_seq:
            return False
        if last_seq - first_seq >= limits.LEDGER_LOST_MAX:
            text, got = "receipt tells of more than can be lost", f"seq {last_seq}"
            raise Refusal("bad_argument", text, got, f"{first_seq - 1 + limits.LEDGER_LOST_MAX}")
        # In one step with that look: no append comes between, and takes one of those seqs.
        engine.ledgers.leap(ledger, last_seq)
        assert ledger.state is not None
        payload = json.dumps({"first_seq": first_seq, "last_seq": last_seq}).encode()
        name = free_id(ledger.state, f"lost:{first_seq}:{last_seq}")
        entry = wire.NewEntry("lost", payload, name, leaf=False)
        engine.ledgers.append(ledger, [entry], None, None, self._wall_ms(), loop.now())
        engine.attested.count(uid, session_id, first_seq, last_seq, kind="session")
        await self._sessions.until("synced")
        return True
