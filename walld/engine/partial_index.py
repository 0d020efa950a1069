"""The index of partials by name: answers "nothing there" without a disk read.

Owns: the names of partial files, where each stands in its life (`partials/life.py`) and, once read
or written, their facts. Refuses: files.

At start only names are known (`partials/<uid>/<session>/<stream>`); a name may be a hash, so
look-ups go from id to name, never back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.paths import path_name

from walld.partials.life import EDGES, Life
from walld.replies.fold import worst_word

if TYPE_CHECKING:
    from walld_client.wire import messages as wire

    from walld.engine.stream import Connection, Stream
    from walld.partials.names import PartialOwner

__all__ = ["IndexedPartial", "PartialIndex"]


class IndexedPartial(NamedTuple):
    """What is known of a partial without its body.

    wal_until: last batch with a record of it. begun_at_ms: of its Begin. has_ended: it holds a
    terminal event; None where only the file's header was read. possibly_missing: how many
    seqs up to last_seq the reply may have had, and the partial has not: its owner may still have
    them.
    gap_word: what its missing seqs are put down to. whose: who may go on with it; None where the
    file does not tell.
    """

    stream_no: int
    last_seq: int
    wal_until: int
    begun_at_ms: int
    has_ended: bool | None = None
    possibly_missing: int = 0
    gap_word: str = "dropped"
    whose: PartialOwner | None = None

    @property
    def held_seq(self) -> int:
        """The last that stands in it."""
        return self.last_seq - self.possibly_missing


class PartialIndex:
    """Partials on disk."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[int, str], dict[str, IndexedPartial | None]] = {}
        self._streams: dict[tuple[int, str], list[str]] = {}
        """Session names by stream name: more than one where a start could not read one of them."""
        self.by_no: dict[int, tuple[int, str, str]] = {}
        self._unkept: dict[Life, dict[tuple[int, str, str], int]] = {
            life: {} for life in (Life.DOUBTED, Life.LEFT, Life.UNWANTED)
        }
        """Those that are, or may be, on disk and are no answer; with the number of their reply."""
        self.unread: set[tuple[int, str, str]] = set()
        """Those that a start could not read: whose they are is not known."""
        self.are_removed = False
        """All there were, by somebody else: those here came later."""
        self.unremoved: set[int] = set()
        """Streams that are done with, and whose partials could not be removed."""

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def __contains__(self, names: tuple[int, str, str]) -> bool:
        """(uid, session name, stream name) of one."""
        return names[2] in self._sessions.get(names[:2], ())

    def life(self, names: tuple[int, str, str]) -> tuple[Life, int | None]:
        """Where the file of that name stands, and the number of its reply where that is known."""
        for life, held in self._unkept.items():
            if names in held:
                return life, held[names]
        facts = self.facts(*names)
        return Life.KEPT if names in self else Life.NONE, None if facts is None else facts.stream_no

    def unkept(self, life: Life) -> dict[tuple[int, str, str], int]:
        """All of that state, which is none of an answer; with the number of their reply."""
        return self._unkept[life].copy()

    def move(self, names: tuple[int, str, str], life: Life, stream_no: int) -> None:
        """To a state that is none of an answer; KEPT is `add`."""
        self._leave(names, life)
        self.remove(*names)
        if life is not Life.NONE:
            self._unkept[life][names] = stream_no

    def _leave(self, names: tuple[int, str, str], to: Life) -> None:
        now = self.life(names)[0]
        assert to in EDGES[now], (names, now, to)
        if now in self._unkept:
            del self._unkept[now][names]

    def add(self, uid: int, session: str, stream: str, facts: IndexedPartial | None) -> None:
        """A partial by its names in the tree: it is kept."""
        self._leave((uid, session, stream), Life.KEPT)
        self._sessions.setdefault((uid, session), {})[stream] = facts
        sessions = self._streams.setdefault((uid, stream), [])
        if session not in sessions:
            sessions.append(session)
        if facts is not None:
            self.by_no[facts.stream_no] = (uid, session, stream)
            self.unread.discard((uid, session, stream))

    def remove(self, uid: int, session: str, stream: str) -> None:
        """The file is gone, or is to go: nobody is told of it any more."""
        sessions = self._streams.get((uid, stream), [])
        if session not in sessions:
            return
        sessions.remove(session)
        if not sessions:
            del self._streams[uid, stream]
        names = self._sessions[uid, session]
        facts = names.pop(stream)
        # A reply that moved has a later one, under other names.
        if facts is not None and self.by_no.get(facts.stream_no) == (uid, session, stream):
            del self.by_no[facts.stream_no]
        if not names:
            del self._sessions[uid, session]
        self.unread.discard((uid, session, stream))

    def lose(self) -> None:
        """Somebody has removed the directory: what stood there is not known any more."""
        self._sessions.clear()
        self._streams.clear()
        self.by_no.clear()
        self.unread.clear()
        self.are_removed = True

    def of_session(self, uid: int, session_id: str) -> list[str]:
        """Stream names of a session, unordered."""
        return list(self._sessions.get((uid, path_name(session_id)), ()))

    def where(self, uid: int, stream_id: str) -> tuple[str, str] | None:
        """(session name, stream name) of a stream's partial; of several of the last to begin."""
        last, last_no = None, -1
        for session, stream in self.places(uid, stream_id):
            facts = self.facts(uid, session, stream)
            if last is None or (facts is not None and facts.stream_no > last_no):
                last, last_no = (session, stream), -1 if facts is None else facts.stream_no
        return last

    def places(self, uid: int, stream_id: str) -> list[tuple[str, str]]:
        """(session name, stream name) of all partials of that stream id."""
        stream = path_name(stream_id)
        return [(session, stream) for session in self._streams.get((uid, stream), ())]

    def of_stream(self, stream: Stream) -> tuple[int, str, str] | None:
        """Names of the partial that goes with a stream; also of the beginning of one that a start
        found, where that could not be read.
        """
        names = self.by_no.get(stream.no)
        if names is not None or stream.restored_seq < 0:
            return names
        uid = stream.begin.uid
        for where in self.places(uid, stream.begin.stream_id):
            if self.facts(uid, *where) is None:
                return uid, *where
        return None

    def facts(self, uid: int, session: str, stream: str) -> IndexedPartial | None:
        """What is known of one; None until it was read, or where it is gone."""
        return self._sessions.get((uid, session), {}).get(stream)

    def own(self, connection: Connection, start: wire.Start) -> IndexedPartial | None:
        """Of the reply that this producer has under that number, and no other's of its name."""
        key, found = (connection.producer.id, start.stream), list[IndexedPartial]()
        for where in self.places(connection.uid, start.stream_id):
            facts = self.facts(connection.uid, *where)
            if facts is not None and facts.whose is not None and facts.whose[:2] == key:
                found.append(facts)
        return max(found, key=lambda one: one.stream_no, default=None)

    def may_be_own(self, uid: int, stream_id: str) -> bool:
        """Whether all there are of that name are unread: whoever says that it has begun one may be
        right, and begins it anew (`fragment_merge.py`).
        """
        places = self.places(uid, stream_id)
        return all((uid, *where) in self.unread for where in places)

    def gap_word_of(self, stream: Stream, found: str) -> str:
        """What missing seqs of a stream are put down to. found: what the start found of damage."""
        is_none_of_it = stream.restored_seq < 0 or (found == "torn" and stream.is_behind_torn)
        words = ["dropped" if is_none_of_it else found]
        names = self.by_no.get(stream.no)
        facts = None if names is None else self.facts(*names)
        if facts is not None:
            words.append(facts.gap_word)
        return worst_word(words)

    def all_names(self, uid: int | None = None) -> list[tuple[int, str, str]]:
        """(uid, session name, stream name) of every one, or of one user."""
        return [
            (owner, session, stream)
            for (owner, session), names in self._sessions.items()
            if uid is None or owner == uid
            for stream in names
        ]
