"""Copies the sessions of a damaged data directory into a new one.

Owns: a session's file of all its whole lines, those of the log behind those of the old file, and
verified copies of its artifacts. Refuses: looking (`session_scan.py`), the log
(`salvage_reader.py`), writing to the old directory, ever.

A file that is damaged, or an artifact that changed, is in quarantine/ of the new directory as it
was. Nothing is made up: what is missing stays missing, and each reading says so, at the end too:
there a snapshot that says no more than how far the session went stands for it. A delete that had
begun has ended in the new directory (U1), and a fork that had not come to be is not there (U2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from walld.cli.inspect.log_lines import Key, LogLines
from walld.cli.inspect.session_scan import SessionFound, let_go, sessions
from walld.disk.base import Disk
from walld.errors import FormatError
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.intents import DELETE, IntentStore
from walld.ledger.line import header_line, line_seq
from walld.ledger.names import ARTIFACTS_DIR, DELETED_FILE, REPAIRED_FILE, SESSIONS_DIR, session_dir
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

__all__ = ["SessionSalvage", "TakenSession"]

_COPIED_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class TakenSession:
    """One session that stands in the new directory. from_log: lines that only the log had."""

    uid: int
    session_id: str
    events: int
    last_seq: int
    from_log: int
    breaks: list[dict[str, Any]] = field(default_factory=list)
    artifacts: int = 0
    artifacts_damaged: list[dict[str, str]] = field(default_factory=list)
    whole: bool = True
    """False where something of its file could not be read, or an artifact is lost."""

    @property
    def key(self) -> Key:
        """Whose."""
        return self.uid, self.session_id


class SessionSalvage:
    """One run. set_aside: copies a file to quarantine, with a note why."""

    def __init__(self, disk: Disk, target: Disk, set_aside: Callable[[str, str], None]) -> None:
        self._disk = disk
        self._target = target
        self._set_aside = set_aside
        self.log = LogLines()
        self.unread: list[str] = []

    def run(self, log_uuid: bytes | None) -> list[TakenSession]:
        """Write every session of the old directory to the new one. log_uuid: of the old one."""
        self._target.make_dir(SESSIONS_DIR)
        let_go(self._disk, self.log, log_uuid)
        self._copy(f"{SESSIONS_DIR}/{DELETED_FILE}")
        taken = []
        for found in sessions(self._disk, self.log):
            if found.session_id is None or found.newer:
                why = found.trouble or "whose it is cannot be read"
                self.unread.append(f"{found.path}: {why}")
                self._set_aside(found.path, why)
            else:
                taken.append(self._session(found, found.session_id))
        return taken

    def end_deletes(self) -> list[Key]:
        """As the next start of the old directory would, behind all that was copied: what came with
        a session before its delete began, or in its quarantine, goes. Of which sessions.
        """
        store, ended = LedgerStore(self._target), []
        store.deleted.load()
        try:
            notes = list(IntentStore(self._disk).notes())
        except OSError as error:
            why = "which sessions are being deleted cannot be read, and they are taken"
            self.unread.append(f"{SESSIONS_DIR}/: {why}: {error.strerror}")
            return []
        for note in notes:
            if isinstance(note, FormatError):
                self.unread.append(f"{note}; of a delete: its session is taken")
            elif note.what == DELETE and note.erase:
                store.delete(*note.key)
                store.deleted.ended(store.deleted.begin(), *note.key)
                ended.append(note.key)
        return ended

    def _session(self, found: SessionFound, session_id: str) -> TakenSession:
        uid, folder = found.uid, session_dir(found.uid, session_id)
        lines = {line_seq(line): line for line in (*found.lines, *found.from_log)}
        if found.trouble or found.torn_bytes or found.breaks:
            self._set_aside(found.path, found.trouble or "it was not whole when it was salvaged")
        ordered = [lines[seq] for seq in sorted(lines)]
        self._target.make_dir(folder)
        content = header_line(uid, session_id) + b"".join(ordered)
        self._target.replace(f"{folder}/{found.path.rpartition('/')[2]}", content)
        self._copy(f"{folder}/{REPAIRED_FILE}")
        last_seq = max(lines, default=0)
        given = max((one["last_seq"] for one in found.breaks), default=0)
        if found.trouble:  # there was something: one event at least
            given = max(given, found.proven, last_seq or 1)
        if given > last_seq:
            SnapshotStore(self._target).write_end(uid, session_id, given)
        taken = TakenSession(
            uid, session_id, len(lines), last_seq, len(found.from_log), found.breaks
        )
        self._artifacts(taken, folder)
        taken.artifacts_damaged = found.artifacts_damaged
        taken.whole = not (found.trouble or found.breaks or found.artifacts_damaged)
        return taken

    def _artifacts(self, taken: TakenSession, folder: str) -> None:
        store = ArtifactStore(self._disk)
        try:
            digests = sorted(store.list(taken.uid, taken.session_id))
        except OSError as error:
            self.unread.append(f"{folder}/{ARTIFACTS_DIR}: {error.strerror}")
            return
        for digest in digests:
            path = f"{folder}/{ARTIFACTS_DIR}/{digest.hex()}"
            try:
                content = store.read(taken.uid, taken.session_id, digest)
            except FormatError as error:
                self._set_aside(path, str(error))
                continue
            except OSError as error:
                self.unread.append(f"{path}: {error.strerror}")
                continue
            self._target.make_dir(f"{folder}/{ARTIFACTS_DIR}")
            self._target.replace(path, content)
            taken.artifacts += 1

    def _copy(self, path: str) -> None:
        """A small file as it is, where it is there."""
        try:
            file = self._disk.open(path)
            try:
                content = file.read_at(_COPIED_BYTES_MAX + 1, 0)
                if len(content) > _COPIED_BYTES_MAX:
                    self.unread.append(f"{path}: {file.size()} bytes, which walld never made it")
                else:
                    self._target.replace(path, content)
            finally:
                file.close()
        except FileNotFoundError:
            return
        except OSError as error:
            self.unread.append(f"{path}: {error.strerror}")
