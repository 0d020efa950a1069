"""Requests about artifacts: put, get, and whether those that entries name are there.

Owns: what they mean. Refuses: their files (`ledger/artifacts.py`), which fields of an entry name
one (`sessions/state/artifacts.py`), other requests of sessions (`sessions.py`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from walld_client.wire import messages as wire

from walld.errors import FormatError, ProtocolError, Refusal
from walld.sessions.state.artifacts import artifacts_of
from walld.sessions.state.entries import check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from walld.daemon.api.replies import ReplyRequests
    from walld.daemon.session_store.handles import Files
    from walld.engine.session_log import SessionLog
    from walld.engine.stream import Connection

__all__ = ["ArtifactRequests"]

_DELETED = "an artifact that it names is not there, or went with its session: send it again"


class ArtifactRequests:
    """Answers what is asked of artifacts."""

    def __init__(self, files: Files, replies: ReplyRequests) -> None:
        self._artifacts = files.artifacts
        self._thread = files.thread
        self._replies = replies
        self.answers: dict[type, Callable[[Connection, Any], Awaitable[Any]]] = {
            wire.PutArtifact: self._put,
            wire.GetArtifact: self._get,
        }

    # --- named by entries -----------------------------------------------------------------------

    def check_sent(self, request: wire.Append, uid: int) -> None:
        """No entry names what was sent before its session was deleted (A2). Refusal.

        An import may: its lines came without their artifacts.
        """
        gone = () if request.unowned else self._artifacts.deleted(uid, request.session_id)
        if gone and (name := next((one for one in _named(request) if one in gone), None)):
            raise Refusal("artifact_missing", _DELETED, name, "an artifact of the session")

    async def check_there(self, request: wire.Append, ledger: SessionLog) -> None:
        """No session begins with an entry that names what is not there (A2). Refusal.

        A daemon that was killed knows of no delete any more. In a session that goes on somebody may
        name again what was lost to damage.
        """
        if request.unowned or ledger.is_begun:
            return
        key = ledger.uid, ledger.session_id
        for name in set(_named(request, has_attached=False)):
            there = partial(self._artifacts.exists, *key, bytes.fromhex(name))
            if not await self._thread.run(there):
                raise Refusal("artifact_missing", _DELETED, name, "an artifact of the session")

    def missing(self, uid: int, session_id: str, named: dict[str, Any]) -> list[dict[str, Any]]:
        """An artifact that an entry names, where it is not there as it was. For the thread."""
        try:
            self._artifacts.read(uid, session_id, bytes.fromhex(named["sha256"]))
        except FileNotFoundError:
            return [named | {"why": "missing"}]
        except FormatError:
            return [named | {"why": "changed"}]
        except OSError as error:  # a bad sector is no reason to say nothing of the rest
            return [named | {"why": f"unreadable: {error.strerror}"}]
        return []

    # --- put and got -----------------------------------------------------------------------------

    async def _put(self, connection: Connection, request: wire.PutArtifact) -> bool:
        check_id("session_id", request.session_id)
        job = partial(
            self._artifacts.put,
            connection.uid,
            request.session_id,
            request.sha256,
            request.size,
            request.offset,
            request.chunk,
        )
        try:
            return await self._thread.run(job)
        except ProtocolError as error:
            raise Refusal(error.code, error.message, error.got, error.limit) from None

    async def _get(self, connection: Connection, request: wire.GetArtifact) -> bytes:
        uid = self._replies.uid_of(connection, request.uid)
        job = partial(self._artifacts.read, uid, request.session_id, request.sha256)
        name = request.sha256.hex()
        try:
            return await self._thread.run(job)
        except FileNotFoundError:
            text = "there is no such artifact"
            raise Refusal("artifact_missing", text, name, "an artifact of the session") from None
        except ProtocolError as error:
            raise Refusal(error.code, error.message, error.got, error.limit) from None
        except FormatError as error:
            raise Refusal("artifact_changed", str(error), name, "the bytes of that hash") from None


def _named(request: wire.Append, *, has_attached: bool = True) -> Iterator[str]:
    """Artifacts that its entries name; has_attached: also what an application itself describes."""
    for entry in request.entries:
        with suppress(ValueError, RecursionError):  # no JSON: refused as such
            kind = entry.type if has_attached or entry.type != "turn_submitted" else ""
            yield from (name for name, _ in artifacts_of(kind, json.loads(entry.payload)))
