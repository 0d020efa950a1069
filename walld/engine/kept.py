"""Which partials there are, by name alone: the table behind "nothing there" without a disk read.

Owns: the names of partial files and, once read or written, their facts. Refuses: files.

At start only names are known (`partials/<uid>/<session>/<stream>`); a name may be a hash, so
look-ups go from id to name, never back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.paths import path_name

if TYPE_CHECKING:
    from walld.engine.stream import Stream

__all__ = ["Kept", "KeptFacts"]


class KeptFacts(NamedTuple):
    """What is known of a partial without its body.

    wal_until: last batch with a record of it. begun_at_ms: of its Begin. has_ended: it holds a
    terminal event; None where only the file's header was read.
    """

    stream_no: int
    last_seq: int
    wal_until: int
    begun_at_ms: int
    has_ended: bool | None = None


class Kept:
    """Partials on disk."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[int, str], dict[str, KeptFacts | None]] = {}
        self._streams: dict[tuple[int, str], str] = {}
        self.by_no: dict[int, tuple[int, str, str]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, uid: int, session: str, stream: str, facts: KeptFacts | None) -> None:
        """A partial by its names in the tree."""
        self._sessions.setdefault((uid, session), {})[stream] = facts
        self._streams[uid, stream] = session
        if facts is not None:
            self.by_no[facts.stream_no] = (uid, session, stream)

    def remove(self, uid: int, session: str, stream: str) -> None:
        """The file is gone, or is to go: nobody is told of it any more."""
        if self._streams.get((uid, stream)) != session:
            return
        del self._streams[uid, stream]
        names = self._sessions[uid, session]
        facts = names.pop(stream)
        if facts is not None:
            self.by_no.pop(facts.stream_no, None)
        if not names:
            del self._sessions[uid, session]

    def of_session(self, uid: int, session_id: str) -> list[str]:
        """Stream names of a session, unordered."""
        return list(self._sessions.get((uid, path_name(session_id)), ()))

    def where(self, uid: int, stream_id: str) -> tuple[str, str] | None:
        """(session name, stream name) of a stream's partial."""
        stream = path_name(stream_id)
        session = self._streams.get((uid, stream))
        return None if session is None else (session, stream)

    def of_stream(self, stream: Stream) -> tuple[int, str, str] | None:
        """Names of the partial that goes with a stream; also of the beginning of one that a start
        found, where that could not be read.
        """
        names = self.by_no.get(stream.no)
        if names is not None or stream.restored_seq < 0:
            return names
        begin = stream.begin
        where = self.where(begin.uid, begin.stream_id)
        unread = where is not None and self.facts(begin.uid, *where) is None
        return (begin.uid, *where) if where is not None and unread else None

    def facts(self, uid: int, session: str, stream: str) -> KeptFacts | None:
        """What is known of one; None until it was read, or where it is gone."""
        return self._sessions.get((uid, session), {}).get(stream)

    def facts_of(self, uid: int, stream_id: str) -> KeptFacts | None:
        """What is known of a stream's partial; None where there is none of this log."""
        where = self.where(uid, stream_id)
        return None if where is None else self.facts(uid, *where)

    def all_names(self, uid: int | None = None) -> list[tuple[int, str, str]]:
        """(uid, session name, stream name) of every one, or of one user."""
        return [
            (owner, session, stream)
            for (owner, session), names in self._sessions.items()
            if uid is None or owner == uid
            for stream in names
        ]
