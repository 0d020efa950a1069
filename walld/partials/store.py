"""Partials on disk: one file for each reply that nobody released.

Owns: the tree partials/<uid>/<session>/<stream>, and that a partial is whole or not there. Refuses:
its bytes (`file.py`), what the items mean (`replies/`), when a partial is made and when it may go
(`engine/`), threads: one at a time.

Invariants
- T1 When `write` has returned, the file and every directory above it survive power loss; before, a
  reader sees the old file or none, never a part.
- T2 A directory exists only while it holds a file: "no such directory" is proof that a session has
  no partial (a client without a daemon relies on it).
- T3 A damaged partial is never deleted and never skipped: `read` raises, `quarantine` keeps it. So
  is one that stands under another's names; what is no file where one belongs `tree` tells of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld_client.paths import path_name

from walld.partials.ages import read_ages, write_ages
from walld.partials.file import (
    Partial,
    PartialFacts,
    check_place,
    pack_partial,
    read_facts,
    read_partial,
)
from walld.partials.names import check_names, name_aside, place_of
from walld.wal.layout import QUARANTINE_DIR
from walld.wal.records import decode_items

if TYPE_CHECKING:
    from walld.disk.base import Disk
    from walld.partials.ages import Ages
    from walld.wal.records import Item

__all__ = ["PARTIALS_DIR", "PartialStore", "Stray", "path_of"]

PARTIALS_DIR = "partials"
_KINDS = {"file": "a file", "dir": "a directory", "other": "a link or a special file"}
"""Entries, for people."""


class Stray(NamedTuple):
    """What stands among partials and leads to none. may_pass: the kernel could not look into it."""

    path: str
    why: str
    may_pass: bool


class PartialStore:
    """The partials below one data directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def write(
        self, uid: int, session_id: str, stream_id: str, facts: PartialFacts, body: bytes
    ) -> None:
        """Keep a partial; an older one of the stream is replaced. Durable when it returns (T1)."""
        session_name, stream_name = path_name(session_id), path_name(stream_id)
        path = path_of(uid, session_name, stream_name)
        content = pack_partial(uid, facts, body, place_of(session_name, stream_name))
        self._disk.make_dir(path.rpartition("/")[0])
        self._disk.replace(path, content)

    def read_ages(self) -> Ages:
        """OSError, FormatError where they cannot be read."""
        return read_ages(self._disk)

    def write_ages(self, ages: bytes) -> None:
        """As `Ages.encode` made them."""
        write_ages(self._disk, ages)

    def read(self, uid: int, session_id: str, stream_id: str) -> Partial:
        """A partial by its ids. FileNotFoundError where there is none; FormatError if damaged,
        Misplaced where it is of others.
        """
        return self.read_named(uid, path_name(session_id), path_name(stream_id))

    def read_named(self, uid: int, session_name: str, stream_name: str) -> Partial:
        """A partial by its names, as `tree` gives them."""
        path = path_of(uid, session_name, stream_name)
        file = self._disk.open(path)
        try:
            partial = read_partial(file, path)
        finally:
            file.close()
        check_place(path, partial.uid, partial.place, partial.body)
        return partial

    def read_reply(
        self, uid: int, session_name: str, stream_name: str
    ) -> tuple[Partial, list[Item]]:
        """A partial and what is in it, which is of these names.

        FormatError; Misplaced where it is of others (T3).
        """
        partial = self.read_named(uid, session_name, stream_name)
        items = decode_items(partial.body)
        is_hurt = partial.facts.gap_word == "corrupt"
        check_names(path_of(uid, session_name, stream_name), items, is_hurt=is_hurt)
        return partial, items

    def read_facts(self, uid: int, session_name: str, stream_name: str) -> PartialFacts:
        """What is known of it without its body. Raises as `read` does."""
        path = path_of(uid, session_name, stream_name)
        file = self._disk.open(path)
        try:
            return read_facts(file, path)
        finally:
            file.close()

    def remove_named(self, uid: int, session_name: str, stream_name: str) -> bool:
        """Remove a partial, durably; False where there was none. Empty directories go too (T2)."""
        path = path_of(uid, session_name, stream_name)
        try:
            self._disk.unlink(path)
        except FileNotFoundError:
            return False
        self._close_up(path)
        return True

    def tree(self, strays: list[Stray] | None = None) -> dict[int, dict[str, list[str]]]:
        """Uid -> session name -> stream names of all partials. Reads directories only.

        strays: takes what stands in the way: links, which nobody follows, whatever else is no
        directory, or no file, where one belongs, and directories that cannot be read.
        """
        strays, found = [] if strays is None else strays, dict[int, dict[str, list[str]]]()
        for uid_path in self._inner(PARTIALS_DIR, "dir", strays):
            for session_path in self._inner(uid_path, "dir", strays):
                streams = self._inner(session_path, "file", strays)
                if streams:
                    _, uid, session = session_path.split("/")
                    found.setdefault(int(uid), {})[session] = [
                        path.rpartition("/")[2] for path in streams
                    ]
        return found

    def _inner(self, path: str, kind: str, strays: list[Stray]) -> list[str]:
        """What is of one kind in a directory; what is of another one is a stray.

        A leading dot is never one of ours (temporary, or NFS's own), nor any other name in the
        place of a uid (lost+found).
        """
        try:
            entries = self._disk.list_dir(path)
        except OSError as error:
            if path == PARTIALS_DIR:
                raise
            strays.append(Stray(path, error.strerror or str(error), may_pass=True))
            return []
        entries = [item for item in entries if item.name[0] != "."]
        if path == PARTIALS_DIR:
            entries = [item for item in entries if _is_uid(item.name)]
        for item in entries:
            if item.kind != kind:
                why = f"{_KINDS[item.kind]} stands where {_KINDS[kind]} belongs: not followed"
                strays.append(Stray(f"{path}/{item.name}", why, may_pass=False))
        return [f"{path}/{item.name}" for item in entries if item.kind == kind]

    def sweep_temporary(self, unsynced: list[Stray] | None = None) -> int:
        """Remove what a crash between write and rename left, and empty directories. Returns files.

        All names that are left are durable afterwards. A daemon that was killed between a rename
        and the sync of its directory leaves a partial that everybody sees and power loss takes
        back; the log must not let go of its records for that, nor of a tombstone for a file whose
        unlink was not synced (simulation, seed 54270). Of thousands of directories nearly all have
        nothing to sync, which costs some microseconds each.

        unsynced: takes the directories of which that is not true; without it they raise. Only for
        the owner of the data directory, before anything is written.
        """
        swept = 0
        for uid_path in self._inner(PARTIALS_DIR, "dir", []):
            for session_path in self._inner(uid_path, "dir", []):
                try:
                    swept += self._sweep(session_path)
                except OSError as error:
                    _note(unsynced, session_path, error)
            try:
                if not self._disk.remove_dir(uid_path):
                    self._disk.sync_dir(uid_path)
            except OSError as error:
                _note(unsynced, uid_path, error)
        try:
            self._disk.sync_dir(PARTIALS_DIR)
        except OSError as error:
            _note(unsynced, PARTIALS_DIR, error)
        return swept

    def _sweep(self, session_path: str) -> int:
        """Files removed."""
        entries = self._disk.list_dir(session_path)
        swept = [item.name for item in entries if item.kind == "file" and _is_temporary(item.name)]
        for name in swept:
            self._disk.unlink(f"{session_path}/{name}")
        if len(swept) < len(entries) or not self._disk.remove_dir(session_path):
            self._disk.sync_dir(session_path)
        return len(swept)

    def quarantine(self, path: str, reason: str) -> str:
        """Move a damaged file out of the way, once, with a note of where it came from (T3).

        Returns its new path. The note is there before the file is, so neither is ever unexplained.
        """
        self._disk.make_dir(QUARANTINE_DIR)
        taken = {entry.name for entry in self._disk.list_dir(QUARANTINE_DIR)}
        new_path = f"{QUARANTINE_DIR}/{name_aside(path, taken)}"
        note = f"from: {path}\nreason: {reason}\n".encode("utf-8", "backslashreplace")
        self._disk.replace(f"{new_path}.note", note)
        self._disk.rename(path, new_path)
        self._disk.sync_dir(QUARANTINE_DIR)
        self._close_up(path)
        return new_path

    def _close_up(self, path: str) -> None:
        """A file is gone: make that durable, and take directories left empty with it (T2)."""
        parent = path.rpartition("/")[0]
        while parent not in ("", PARTIALS_DIR) and self._disk.remove_dir(parent):
            parent = parent.rpartition("/")[0]
        self._disk.sync_dir(parent)


def path_of(uid: int, session_name: str, stream_name: str) -> str:
    """Where the partial of these names stands, from the data directory on."""
    return f"{PARTIALS_DIR}/{uid}/{session_name}/{stream_name}"


def _is_uid(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _note(unsynced: list[Stray] | None, path: str, error: OSError) -> None:
    if unsynced is None:
        raise error
    unsynced.append(Stray(path, error.strerror or str(error), may_pass=True))


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")
