"""Lists the sessions below a data directory without reading them.

Owns: the tree of directories, and whose each is. Refuses: what is between a first and a last line.

What cannot be read, or is no directory, is listed with its trouble, never left out: somebody's work
is in it. So is one that has a snapshot and no events, which are what a delete removes last.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from walld_client.paths import path_name

from walld.errors import FormatError, NewerVersion
from walld.ledger.append_position import first_header
from walld.ledger.line import read_line
from walld.ledger.names import EVENTS_FILE, SESSIONS_DIR, SNAPSHOT_FILE, session_dir
from walld.ledger.scan import end_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import Disk

__all__ = ["SessionRow", "folders", "session_rows"]


class SessionRow(NamedTuple):
    """A session in the listing. bytes: of its events. trouble: why session_id is None.

    session_name: its directory's, empty where those of a whole user cannot be told. newer: a later
    walld wrote it.
    """

    uid: int
    session_name: str
    session_id: str | None
    last_seq: int
    last_at_ms: int
    bytes: int
    trouble: str = ""
    newer: bool = False

    @property
    def shown_id(self) -> str:
        """Its id; where that cannot be read, its directory's name, which most ids are too."""
        return _text(self.session_name) if self.session_id is None else self.session_id

    @property
    def shown_trouble(self) -> str:
        """The trouble as text: it may name a file."""
        return _text(self.trouble)


def session_rows(disk: Disk) -> Iterator[SessionRow]:
    """All sessions. Reads the first and the last line of each; one that fails hides no other."""
    for uid_path, kind in _entries(disk, SESSIONS_DIR):
        uid_name = uid_path.rpartition("/")[2]
        if not (uid_name.isascii() and uid_name.isdigit()):
            continue
        uid = int(uid_name)
        if kind != "dir":
            yield _unread(uid, "", f"{uid_path} is no directory: not followed")
            continue
        try:
            inner = _entries(disk, uid_path)
        except OSError as error:
            yield _unread(uid, "", f"{uid_path} cannot be read: {error.strerror}")
            continue
        for folder, kind in inner:
            name = folder.rpartition("/")[2]
            if kind != "dir":
                yield _unread(uid, name, f"{folder} is no directory: not followed")
                continue
            try:
                yield _row(disk, uid, folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                yield _unread(uid, name, f"{folder}/{EVENTS_FILE} cannot be read: {error.strerror}")
            except Exception as error:  # a bug met by one session costs no other
                bug = f"{type(error).__name__}: {error}"
                yield _unread(uid, name, f"{folder}/{EVENTS_FILE} cannot be read, a bug: {bug}")


def _text(name: str) -> str:
    """A file's name has any bytes, and those that are no UTF-8 no wire takes."""
    return name.encode("utf-8", "backslashreplace").decode()


def folders(disk: Disk, path: str) -> list[str]:
    """The directories in one."""
    return [folder for folder, kind in _entries(disk, path) if kind == "dir"]


def _entries(disk: Disk, path: str) -> list[tuple[str, str]]:
    """(path, kind) of what is in a directory; a leading dot is never one of ours."""
    return [(f"{path}/{e.name}", e.kind) for e in disk.list_dir(path) if e.name[0] != "."]


def _unread(uid: int, name: str, trouble: str) -> SessionRow:
    return SessionRow(uid, name, None, 0, 0, 0, trouble)


def _row(disk: Disk, uid: int, folder: str) -> SessionRow:
    name = folder.rpartition("/")[2]
    try:
        file = disk.open(f"{folder}/{EVENTS_FILE}")
    except FileNotFoundError:
        disk.open(f"{folder}/{SNAPSHOT_FILE}").close()
        session_id = name if path_name(name) == name else None
        text = f"{folder}/{EVENTS_FILE} is gone: only its snapshot is there"
        return SessionRow(uid, name, session_id, 0, 0, 0, text)
    session_id, trouble, newer, there = None, "", False, b""
    try:
        size = file.size()
        try:
            header, there = first_header(file)
            if session_dir(header.uid, header.session_id) == folder:
                session_id = header.session_id
            else:
                trouble = f"{file.path}: its header is of session {header.session_id!r}"
        except FormatError as error:
            trouble, newer = str(error), isinstance(error, NewerVersion)
        end = end_of(file, size, there)
    finally:
        file.close()
    at_ms, last_seq = 0, 0
    if end is not None:
        last_seq = end.line.seq
        with suppress(FormatError):
            at_ms = read_line(end.line.line).at_ms
    return SessionRow(uid, name, session_id, last_seq, at_ms, size, trouble, newer)
