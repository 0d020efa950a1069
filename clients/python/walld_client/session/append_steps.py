"""The steps of a session's appending calls.

Owns: the meaning of each call in entries, and the one request behind them all. Refuses: reading
(`session_steps.py`), sockets and waiting (`steps.py`), the forms of an entry (`entries.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walld_client.argument_checks import (
    Count,
    Dict,
    Dicts,
    EntryId,
    Ident,
    Name,
    Seq,
    Source,
    checked_list,
    wrong,
)
from walld_client.encoding.entry_names import names_of
from walld_client.encoding.redaction import redacted
from walld_client.errors import Refused, Unavailable
from walld_client.ids import Entry, checked_id, id_in, id_of
from walld_client.limits import PAYLOAD_BYTES_MAX
from walld_client.query.requests import decode_placed
from walld_client.session import artifacts, entries, truncation
from walld_client.session.append_queue import AppendQueue, delivered
from walld_client.session.entries import Artifact, Draft, draft
from walld_client.steps import Asked, Steps
from walld_client.wire import messages as wire

__all__ = ["Appending", "Redact", "Seen"]

Redact = Callable[[str], str] | None
Seen = Callable[[str], list[wire.Seen]]


class Appending:
    """A session of one client: its id, and how this process changes and sees what it sends."""

    __slots__ = (
        *("_app", "_append_queue", "_reads_grants", "_redact", "_seen"),
        *("breaks", "session_id"),
    )

    def __init__(
        self,
        session_id: str,
        redact: Redact,
        seen: Seen,
        append_queue: AppendQueue | None,
        app: str | None = None,
    ) -> None:
        """app: whose replies it adopts; None: everybody's."""
        self.session_id = checked_id(session_id, "session_id")
        self._app = app
        self._redact = redact
        self._seen = seen
        self._append_queue = append_queue
        self._reads_grants = False
        self.breaks: list[dict[str, Any]] = []

    # --- appending ---

    def append(
        self,
        type: Name,  # noqa: A002
        payload: Dict | None = None,
        *,
        id: EntryId | None = None,  # noqa: A002
        parent: EntryId | None = None,
        turn: EntryId | None = None,
        key: Ident | None = None,
        once: bool = False,
        leaf: bool = True,
        cause: EntryId | None = None,
        correlation: EntryId | None = None,
        expected_seq: Seq | None = None,
        synced: bool = False,
        wait: bool = True,
    ) -> Steps[Entry]:
        """Append an event; of a type of your own it is kept and in no message.

        wait: False sends it like a token, in order, and gives an Entry of seq 0; where the daemon
        is away it is kept, and sent once it is back. What it is refused for is logged,
        and what is dropped because its session could not be written for a second.
        once: where its key (or, without one, its id) is there already, the first entry stands; its
        id is "" where that entry was lost to damage.
        payload: what JSON cannot hold is kept as near as it goes: bytes as base64, other objects as
        their repr, NaN and infinities as null (of what is said to a model they are a ValueError).
        leaf: what is appended next hangs on it. expected_seq: Refused (`stale`) where the session
        is at another. synced: wait until it survives the loss of power, not only of a process.
        """
        one = draft(
            type,
            {} if payload is None else payload,
            id=id,
            key=key,
            once=once,
            parent=parent,
            turn=turn,
            leaf=leaf,
            cause=cause,
            correlation=correlation,
        )
        if wait or self._append_queue is None:
            return (yield from self.appended([one], synced=synced, expected_seq=expected_seq))[0]
        if synced or expected_seq is not None:
            raise ValueError("synced and expected_seq want an answer: not with wait=False")
        return (yield from self.posted(one))

    def append_many(
        self,
        entries: Dicts,
        *,
        expected_seq: Seq | None = None,
        synced: bool = False,
    ) -> Steps[list[Entry]]:
        """Append all of them or none. Each is a dict of the arguments of `append`."""
        drafts = []
        for at, one in enumerate(entries):
            fields = {"payload": {}, **one}
            if unknown := fields.keys() - _FIELDS:
                text = f"an entry has no {', '.join(sorted(map(str, unknown)))}"
                raise TypeError(f"entries[{at}]: {text}, only {', '.join(_FIELDS)}")
            if "type" not in fields:
                raise TypeError(f"entries[{at}]: type must be a str, got nothing")
            try:
                drafts.append(draft(**fields))
            except (TypeError, ValueError) as error:
                raise type(error)(f"entries[{at}]: {error}") from None
        if not drafts and expected_seq is None:
            return []
        return (yield from self.appended(drafts, synced=synced, expected_seq=expected_seq))

    def message(
        self,
        /,
        role: Name,
        content: Any,
        *,
        id: EntryId | None = None,  # noqa: A002
        parent: EntryId | None = None,
        turn: EntryId | None = None,
        key: Ident | None = None,
        once: bool = False,
        leaf: bool = True,
        cause: EntryId | None = None,
        correlation: EntryId | None = None,
        expected_seq: Seq | None = None,
        synced: bool = False,
        wait: bool = True,
        **meta: Any,
    ) -> Steps[Entry]:
        """Append a message; `meta` is kept beside its role and content. The rest as `append`."""
        payload = {"role": role, "content": content, **meta}
        return (
            yield from self.append(
                "message",
                payload,
                id=id,
                parent=parent,
                turn=turn,
                key=key,
                once=once,
                leaf=leaf,
                cause=cause,
                correlation=correlation,
                expected_seq=expected_seq,
                synced=synced,
                wait=wait,
            )
        )

    def edit(
        self,
        /,
        target: str | Entry | Sequence[Mapping[str, Any]],
        message: Any = None,
        **fields: Any,
    ) -> Steps[Entry]:
        """Replace a message, named by its id or message_id; or the whole list by another.

        The new message is its content (a text or a list), or a dict, or role=, content= and what
        else there is of it; where no role is given it has that of the message there.
        What was there stays in the log. A message of a list is named by the `_message_id` it has
        there, a summary by its compaction. Refused (`unknown_target`) where nothing would change:
        what was undone, what a list took the place of, what is no message. To know, it reads the
        session.
        """
        if not isinstance(target, (str, Entry)):
            listed = checked_list(target, "target", "messages (or a str, an id)", Mapping)
            if message is not None or fields:
                raise TypeError("edit() of one message needs its id, a str; of a list nothing else")
            return (yield from self._listed("message_edit", "messages", listed))
        new = _edited(message, fields)
        target = id_in(target, "target")
        found = yield from self.edit_target(target, with_role="role" not in new)
        role = found.pop("role", None)
        if "role" not in new:
            if role is None and "why" not in found:
                found["why"] = "a message of this branch"
            new = {"role": role} | new
        if "why" in found:
            raise Refused("unknown_target", target, found["why"], "an edit would change nothing")
        return (yield from self.append("message_edit", {**found, "message": new}))

    def edit_target(self, name: str, *, with_role: bool) -> Steps[dict[str, str]]:
        """What an edit of a message that is named so changes, or why nothing; role: its role."""
        raise NotImplementedError

    def tip_of(self, branch: str | Entry, refused: Refused) -> Steps[str | None]:
        """The last entry of the branch of that name; None before the first."""
        raise NotImplementedError

    def line(self, seq: int) -> Steps[dict[str, Any]]:
        """The event of that seq."""
        raise NotImplementedError

    def undo(self, n: Count = 1) -> Steps[Entry]:
        """Take the last n messages off; more than there are empties the session."""
        return (yield from self.append("undo", {"n": n}))

    def label(self, id: EntryId, text: str | None) -> Steps[Entry]:  # noqa: A002
        """Name an entry; None takes the name off."""
        return (yield from self.append("label", {"target": id, "text": text}))

    def setting(self, key: str, value: Any) -> Steps[Entry]:
        """Set a value that belongs to the branch it is set on."""
        return (yield from self.append("setting", {"key": key, "value": value}))

    def change_model(self, model: str) -> Steps[Entry]:
        """From here on the branch speaks with another model; in no message."""
        return (yield from self.append("model_change", {"model": model}))

    def branch(
        self, at: EntryId | None, name: str | None = None, *, summary: str | None = None
    ) -> Steps[Entry]:
        """What is appended next hangs on entry `at`; None: before the first one.

        name: what the branch that begins there is called. Where `at` is such a name, and no
        entry's id, that branch goes on. summary: of the branch that is left, which messages() has
        as the user's from here on.
        """
        try:
            return (yield from self._moved(at, name, summary))
        except Refused as error:
            if error.code != "unknown_target" or at is None:
                raise
            tip = yield from self.tip_of(at, error)
            return (yield from self._moved(tip, name or id_of(at), summary))

    def _moved(self, at: str | Entry | None, name: str | None, summary: str | None) -> Steps[Entry]:
        drafts = [draft("leaf", {"target": at} | ({"name": name} if name else {}))]
        if summary is not None:
            drafts.append(draft("branch_summary", {"target": at, "text": summary}))
        return (yield from self.appended(drafts))[-1]

    def compact(
        self,
        summary: str | None = None,
        first_kept: EntryId | None = None,
        *,
        replacement: Dicts | None = None,
    ) -> Steps[Entry]:
        """Messages before `first_kept` read as a summary, or all so far as `replacement`.

        Only `messages()` changes; every event stays.
        """
        if replacement is not None and summary is None:
            return (yield from self._listed("compaction", "replacement", replacement))
        if replacement is not None or summary is None or first_kept is None:
            raise TypeError("compact() takes a summary and first_kept, or a replacement")
        payload = {"summary": summary, "first_kept": first_kept}
        return (yield from self.append("compaction", payload))

    def artifact(
        self,
        source: Source,
        media_type: str | None = None,
        *,
        name: str | None = None,
        turn: EntryId | None = None,
    ) -> Steps[Artifact]:
        """Keep bytes, or the file of that path, beside the session; the event names them."""
        uploaded = artifacts.upload(self.session_id, source, media_type, name)
        described = yield from uploaded
        entry = yield from self.append("artifact", described, turn=turn)
        return Artifact(entry.id, entry.seq, entry.is_new, described["sha256"], described["size"])

    # --- within ---

    def seen(self) -> list[wire.Seen]:
        """How far this process has come with its streams of the session."""
        return self._seen(self.session_id)

    def _listed(
        self,
        type: str,  # noqa: A002
        field: str,
        messages: Sequence[Mapping[str, Any]],
    ) -> Steps[Entry]:
        """An entry that holds a list, and others where it is too long for one; all or none.

        Where all of them are too long for one request, long content of them is put beside.
        """
        drafts = [
            draft(type, {field: piece} | ({"append": True} if at else {}))
            for at, piece in enumerate(entries.in_pieces(messages))
        ]
        made = yield from self.made(
            drafts, truncation.shares([one.payload for one in drafts], type)
        )
        return (yield from self.placed(made, synced=False))[-1]

    def appended(
        self,
        drafts: Sequence[Draft],
        *,
        synced: bool = False,
        expected_seq: Seq | None = None,
    ) -> Steps[list[Entry]]:
        """The one request behind every call that appends."""
        made = yield from self.made(drafts)
        return (yield from self.placed(made, synced=synced, expected_seq=expected_seq))

    def posted(self, one: Draft) -> Steps[Entry]:
        """Appended without waiting for it. Unavailable where so much waits that it does not fit."""
        (entry,) = yield from self.made([one])
        assert self._append_queue is not None
        self._append_queue.post(self.session_id, entry)
        return Entry(entry.id, 0)

    def delivered(self) -> Steps[None]:
        """What was appended to it without waiting goes before whatever is asked of it now."""
        if self._append_queue is not None:
            yield from delivered(self._append_queue, self._append_queue.timeout, self.session_id)

    def made(
        self, drafts: Sequence[Draft], bytes_max: int = PAYLOAD_BYTES_MAX
    ) -> Steps[list[wire.NewEntry]]:
        """Drafts as they travel, what is too long put beside the session."""
        travelling = []
        for one in drafts:
            payload = self.told(one)
            text = yield from artifacts.fitted(self.session_id, payload, one.type, bytes_max)
            travelling.append(entries.as_entry(one, text))
        return travelling

    def told(self, one: Draft) -> dict[str, Any]:
        """The payload of a draft as `redact` leaves it."""
        entries.check_said(one.type, one.payload)
        if self._redact is None:
            return one.payload
        told: dict[str, Any] = redacted(one.payload, self._redact, names_of(one.type))
        return told

    def placed(
        self,
        made: list[wire.NewEntry],
        *,
        synced: bool,
        expected_seq: Seq | None = None,
    ) -> Steps[list[Entry]]:
        """Append what is ready to travel."""
        entries.check_size(made)
        yield from self.delivered()
        session_id, level = self.session_id, "synced" if synced else "written"
        answer = yield Asked(
            lambda request_id: wire.Append(
                request_id, session_id, made, expected_seq, level, self._seen(session_id)
            ),
            again=expected_seq is None and all(entry.once for entry in made),
        )
        placed = decode_placed(answer)
        if len(placed) != len(made):
            raise Unavailable(f"walld placed {len(placed)} of {len(made)} entries")
        return [Entry(one.id, one.seq, one.is_new) for one in placed]


def _edited(message: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The message that takes another's place, perhaps without a role."""
    if isinstance(message, Mapping):
        new = {**message, **fields}
    elif isinstance(message, (str, list, tuple)) and "content" not in fields:
        new = {"content": message, **fields}
    elif message is None:
        new = dict(fields)
    else:
        raise wrong("message", "a text, a list of blocks or a dict", message)
    if new.keys().isdisjoint(("role", "content")):
        text = "edit() of one message needs the message that takes its place, or its content"
        raise TypeError(f"{text}; got {', '.join(map(repr, new))[:100] or 'none'}")
    return new


_FIELDS = dict.fromkeys(
    (
        *("type", "payload", "id", "parent", "turn", "key"),
        *("once", "leaf", "cause", "correlation"),
    )
)
