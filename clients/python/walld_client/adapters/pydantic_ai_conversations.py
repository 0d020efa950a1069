"""A conversation store for Pydantic AI on the session ledger.

    store = WalldConversationStore(walld_client.aio.connect())

A conversation is the session `prefix + conversation_id`; its record and its messages are entries of
it, synced before `save` returns.

Owns: the five primitives of `ConversationStore`. Refuses: what is new, what branches (its own
methods), waiting (`steps.py`).

- A save is one append, all or none, that the daemon takes only where nothing has come since the
  record was read (`expected_seq`): two writers of one revision cannot both succeed. Messages beyond
  what one append holds go before it, and belong to nothing until the record names them.
- A fork gets copies of the messages it begins with, under their own ids: every conversation is
  whole in its own session, whatever is deleted.
- The interface asks for an entry by its id alone. A store remembers which conversation has the
  heads it has seen; an id it has not seen is looked for in every session.
- `delete` hides the conversation. Its bytes go with `client.delete(store.session_id(id))`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeVar

from walld_client import aio
from walld_client.adapters.frameworks.extras import needs
from walld_client.client import Client
from walld_client.errors import Refused, Unavailable
from walld_client.ids import checked_id
from walld_client.limits import APPEND_BYTES_MAX, PAYLOAD_BYTES_MAX
from walld_client.session import artifacts, ledger_steps
from walld_client.session.entries import json_text, read_json
from walld_client.session.session_steps import SessionSteps
from walld_client.steps import Steps

with needs("pydantic-ai", "pydantic", "pydantic_ai"):
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )

__all__ = ["WalldConversationStore"]

_T = TypeVar("_T")
_ENTRY = "pydantic_ai.entry"
_RECORD = "pydantic_ai.record"
_HEADS_MAX = 4096
_TRIES = 16
_ENTRIES_MAX = 500
"""Of one append; the daemon takes 1000."""

# A list, for which alone bytes (of a message's metadata) may be base64, as in Pydantic AI's own.
_entries: Any = TypeAdapter(
    list[ConversationEntry], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)
_record: Any = TypeAdapter(ConversationRecord)


class WalldConversationStore(ConversationStore):
    """Keeps each conversation in a session of walld.

    client: of `walld_client.aio.connect`; one of `walld_client.connect` is asked in a thread.
    prefix: goes before each conversation id, for programs of one user whose ids would meet.
    """

    def __init__(self, client: Client | aio.Client, *, prefix: str = "") -> None:
        if not hasattr(client, "_append_queue"):
            raise ValueError(
                "walld is switched off (WALLD_ENABLED), so there is nowhere to keep conversations"
            )
        self._client: Any = client
        self._prefix = prefix
        self._heads: OrderedDict[str, str] = OrderedDict()
        """Conversation ids by the entries at which their histories end."""

    def session_id(self, conversation_id: str) -> str:
        """The session of a conversation."""
        return checked_id(f"{self._prefix}{conversation_id}", "conversation_id")

    # --- Pydantic AI's primitives ---

    async def read_record(self, conversation_id: str) -> Any:
        """The newest record of a conversation, None where there is none or it was deleted."""
        return (await self._asked(self._newest(conversation_id)))[0]

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Any:
        """The records of all conversations, the last saved first. Asks each session."""
        found = [
            record
            for record in await self._asked(self._all_records())
            if scope is None or record.scope == scope
        ]
        found.sort(key=lambda record: record.updated_at, reverse=True)
        return found[:limit]

    async def write_record(
        self,
        record: Any,
        *,
        new_entries: Sequence[Any] = (),
        expected_revision: str | None,
    ) -> None:
        """Append messages and record, unless the conversation has changed: ConversationConflict."""
        await self._asked(self._write(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Hide a conversation, unless it has changed: ConversationConflict."""
        dropped = {"record": None}
        await self._asked(self._replace(conversation_id, dropped, [], expected_revision))

    async def read_entry(self, entry_id: str) -> Any:
        """One message with its links. KeyError where no conversation has it."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> Any:
        """The messages up to that one, the last `limit` of them. KeyError where one is missing."""
        if head_id is None or limit == 0:
            return []
        return await self._asked(self._history(head_id, limit))

    # --- as steps ---

    def _newest(self, conversation_id: str) -> Steps[tuple[Any, int]]:
        """The record, and the seq of the entry it is in (0: never written)."""
        session = self._session(conversation_id)
        found = yield from session.find(_RECORD, last=1)
        if not found:
            return None, 0
        held = yield from _whole(session, found[0]["payload"]["record"])
        if held is None:
            return None, found[0]["seq"]
        record = _record.validate_python(held)
        self._remember(record)
        return record, found[0]["seq"]

    def _all_records(self) -> Steps[list[Any]]:
        found = []
        for conversation_id in (yield from self._conversation_ids()):
            record, _ = yield from self._newest(conversation_id)
            if record is not None:
                found.append(record)
        return found

    def _write(
        self, record: Any, new_entries: Sequence[Any], expected_revision: str | None
    ) -> Steps[None]:
        entries = list(new_entries)
        head_id = entries[0].parent_id if entries else record.head_id
        if head_id is not None:
            session = self._session(record.conversation_id)
            if not (yield from session.find(_ENTRY, key=head_id, last=1)):
                try:
                    entries[:0] = yield from self._history(head_id, None)
                except KeyError:
                    raise ConversationConflict(record.conversation_id) from None
        if record.head_id is not None and entries and entries[-1].id != record.head_id:
            raise ConversationConflict(record.conversation_id)
        payload = {"record": _record.dump_python(record, mode="json")}
        yield from self._replace(record.conversation_id, payload, entries, expected_revision)
        self._remember(record)

    def _replace(
        self,
        conversation_id: str,
        payload: dict[str, Any],
        entries: Sequence[Any],
        expected_revision: str | None,
    ) -> Steps[None]:
        session = self._session(conversation_id)
        stored, seq = yield from self._newest(conversation_id)
        *before, last = _pieces(entries)
        if before and (stored.revision if stored else None) == expected_revision:
            for piece in before:
                yield from session.append_many(piece)
        for _ in range(_TRIES):
            if (stored.revision if stored else None) != expected_revision:
                raise ConversationConflict(conversation_id)
            made = [*last, {"type": _RECORD, "payload": payload, "leaf": False}]
            try:
                yield from session.append_many(made, synced=True, expected_seq=seq)
            except Refused as refused:
                if refused.code != "stale":
                    raise
                # Something else came, perhaps of another type: the record decides, up to there.
                stored, _ = yield from self._newest(conversation_id)
                seq = int(refused.limit)
            else:
                return
        raise Unavailable(
            f"conversation {conversation_id!r} was not saved in {_TRIES} tries: its session is"
            " appended to all the time; save it again"
        )

    def _history(self, head_id: str, limit: int | None) -> Steps[list[Any]]:
        session = yield from self._having(head_id)
        wanted = limit
        while True:
            found = yield from session.find(_ENTRY, last=wanted)
            by_id = {one["key"]: one for one in found}
            path: list[Any] = []
            at: str | None = head_id
            while at in by_id and (limit is None or len(path) < limit):
                held = yield from _whole(session, by_id[at]["payload"]["entry"])
                path += _entries.validate_python([held])
                at = path[-1].parent_id
            if at is None or len(path) == limit:
                return path[::-1]
            if wanted is None or len(found) < wanted:
                raise KeyError(at)
            wanted *= 4

    def _having(self, entry_id: str) -> Steps[SessionSteps]:
        """The session of a conversation that has this entry."""
        known = self._heads.get(entry_id)
        others = [] if known is None else [known]
        for remembered in (True, False):
            if not remembered:
                others = yield from self._conversation_ids()
            for conversation_id in others:
                session = self._session(conversation_id)
                if (yield from session.find(_ENTRY, key=entry_id, last=1)):
                    return session
        raise KeyError(entry_id)

    def _conversation_ids(self) -> Steps[list[str]]:
        there = yield from ledger_steps.sessions(self._prefix)
        return [one.session_id.removeprefix(self._prefix) for one in there]

    # --- within ---

    def _session(self, conversation_id: str) -> SessionSteps:
        # Not through `redact`: a message that was changed would be taken for a rewritten history.
        session_id = self.session_id(conversation_id)
        return SessionSteps(session_id, None, lambda _: [], self._client._append_queue)

    def _remember(self, record: Any) -> None:
        for entry_id in (record.head_id, *record.branches):
            if entry_id is not None:
                self._heads[entry_id] = record.conversation_id
                self._heads.move_to_end(entry_id)
        while len(self._heads) > _HEADS_MAX:
            self._heads.popitem(last=False)

    async def _asked(self, steps: Steps[_T]) -> _T:
        if isinstance(self._client, aio.Client):
            return await self._client._asked(steps)
        found: _T = await asyncio.to_thread(self._client._asked, steps)
        return found


def _pieces(entries: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """Entries as an append takes them, in pieces that fit one; the last has room for a record."""
    pieces: list[list[dict[str, Any]]] = [[]]
    size = 0
    for one in entries:
        payload = {"entry": _entries.dump_python([one], mode="json")[0]}
        length = min(len(json_text(payload)), PAYLOAD_BYTES_MAX)
        if size + length > APPEND_BYTES_MAX - PAYLOAD_BYTES_MAX or len(pieces[-1]) == _ENTRIES_MAX:
            pieces.append([])
            size = 0
        size += length
        pieces[-1].append(
            {"type": _ENTRY, "payload": payload, "key": one.id, "once": True, "leaf": False}
        )
    return pieces


def _whole(session: SessionSteps, held: Any) -> Steps[Any]:
    """What stands in a payload, also where it was too long for one."""
    if isinstance(held, dict) and "_artifact" in held:
        return read_json(
            (yield from artifacts.read(session.session_id, held["_artifact"]["sha256"]))
        )
    return held
