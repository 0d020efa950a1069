"""The messages about sessions, and the parts all requests share.

Owns: tags 54 to 62 and 81, the base of every message, `RequestId` and `Seen`. Refuses: all other
frames and the unions (`messages.py`, which gives these names out as well); I/O, framing, meaning.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

__all__ = [
    "OF_ITS_SESSION",
    "OF_THIS_MOMENT",
    "Append",
    "Attest",
    "Delete",
    "DeleteAt",
    "EntryList",
    "Events",
    "Fork",
    "GetArtifact",
    "Message",
    "NewEntry",
    "Placed",
    "Project",
    "PutArtifact",
    "RequestId",
    "Seen",
    "SeenList",
    "SessionFacts",
    "Sessions",
]


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of every message: a msgpack array. Each repeats `frozen`: mypy asks for it."""


RequestId = Annotated[int, msgspec.Meta(ge=1)]
"""An Error of id 0 is not the answer to a request but the end of the connection."""


class Seen(Message, frozen=True):
    """The asking process has handed the kernel `stream` up to `seq`: answer with that much."""

    producer: bytes
    stream: int
    seq: int


_LIST_MAX: Final = 20_000
"""Of a request: looked at before any of it is decoded. Each takes more memory than it has bytes."""
SeenList = Annotated[list[Seen], msgspec.Meta(max_length=_LIST_MAX)]


class NewEntry(Message, frozen=True):
    """An event for a session's ledger, as an application gives it.

    payload: one JSON object as UTF-8 text without a newline. id: unique in the session; the client
    draws one where its application gives none, so that an Append that is sent twice adds once.
    parent: the entry it hangs on, None for the leaf of that moment. leaf: it becomes the leaf.
    key: what the view `find` looks for. once: where the key (or, without one, the id) is there
    already, the first entry stands and nothing is added.
    """

    type: str
    payload: bytes
    id: str
    parent: str | None = None
    turn: str | None = None
    cause: str | None = None
    correlation: str | None = None
    key: str | None = None
    leaf: bool = True
    once: bool = False
    at_ms: int = 0


EntryList = Annotated[list[NewEntry], msgspec.Meta(max_length=_LIST_MAX)]


class Append(Message, tag=54, frozen=True):
    """Append to a session's ledger, all entries or none. Answer: list of Placed.

    expected_seq: highest seq the caller knows; another one is an Error "stale" whose limit is the
    present one. level: what is waited for, "taken" | "written" | "synced". unowned: who asks does
    not work on the turns in it, and none of them is interrupted when it ends. in_order: others come
    behind it without waiting for its answer, and are not to overtake it: an Error that says nothing
    of it, but of this moment or of its session, ends the connection.
    """

    id: RequestId
    session_id: str
    entries: EntryList
    expected_seq: int | None = None
    level: str = "written"
    seen: SeenList = []
    unowned: bool = False
    in_order: bool = False


OF_THIS_MOMENT: Final = ("recovering", "behind", "ledger_full", "disk_full")
OF_ITS_SESSION: Final = ("unreadable", "internal", "unwritable")
"""Codes of an Error that says nothing of the Append it answers: that is asked again."""


class Events(Message, tag=55, frozen=True):
    """Lines of a session's ledger with seqs above `after`. Answer: list of bytes, nil where it was
    never written. limit: at most so many, 0 for all.
    """

    id: RequestId
    session_id: str
    after: int = 0
    limit: int = 0
    uid: int | None = None
    seen: SeenList = []
    breaks: bool = False


class Project(Message, tag=56, frozen=True):
    """A view of a session. Answer: JSON text as bytes, nil where it was never written.

    name: messages | state | turn | tree | transcript | trace | audit | eval | pending | resume |
    find. arguments: a JSON object. breaks: as in Events.
    """

    id: RequestId
    session_id: str
    name: str
    arguments: bytes = b"{}"
    uid: int | None = None
    seen: SeenList = []
    breaks: bool = False


class Sessions(Message, tag=57, frozen=True):
    """Ledgers of the caller whose session id begins with `prefix`. Answer: list of SessionFacts."""

    id: RequestId
    prefix: str = ""
    uid: int | None = None


class Delete(Message, tag=58, frozen=True):
    """Remove all there is of a session: ledger, artifacts, replies. Answer: bool, was there any.

    Answered when nothing of it can be read back any more; the bytes follow.
    """

    id: RequestId
    session_id: str
    uid: int | None = None
    seen: SeenList = []


class DeleteAt(Message, tag=81, frozen=True):
    """A Delete of what ends at `last_seq` and has no reply that is not released. Answer: true.

    Another last one is an Error "stale" whose limit is the present one, 0 where there is none; such
    a reply an Error "unreleased". Nothing was deleted then. Not a field of Delete: a daemon that
    does not know it would delete all the same.
    """

    id: RequestId
    session_id: str
    last_seq: int
    uid: int | None = None
    seen: SeenList = []


class Fork(Message, tag=59, frozen=True):
    """A new session `new_id` from the path to entry `at` (None: the leaf; whole: every branch).

    Answer: list of Placed, one: the last entry of the new session.
    """

    id: RequestId
    session_id: str
    new_id: str
    at: str | None = None
    whole: bool = False
    seen: SeenList = []


class PutArtifact(Message, tag=60, frozen=True):
    """A piece of an artifact. Answer: bool, it is whole, verified and durable.

    sha256: 32 bytes, of the whole. size: of the whole. One that is there already is True at once.
    """

    id: RequestId
    session_id: str
    sha256: bytes
    size: int
    offset: int
    chunk: bytes


class GetArtifact(Message, tag=61, frozen=True):
    """Answer: the artifact's bytes, verified; Error "artifact_missing" or "artifact_changed"."""

    id: RequestId
    session_id: str
    sha256: bytes
    uid: int | None = None


class Attest(Message, tag=62, frozen=True):
    """The last receipt that an answer about this session brought. Answer: bool, something is lost.

    A client sends it once a connection, before what it asks of the session.
    """

    id: RequestId
    session_id: str
    receipt: bytes


class Placed(Message, frozen=True):
    """Where an entry stands. is_new: False where it was there already."""

    seq: int
    id: str
    is_new: bool = True


class SessionFacts(Message, frozen=True):
    """A session's ledger, without its events. bytes: of its events on disk and on their way.

    trouble: why it cannot be read, or not as its own; where even its id cannot be, session_id is
    its directory's name.
    """

    session_id: str
    uid: int
    last_seq: int
    last_at_ms: int
    bytes: int
    trouble: str = ""
