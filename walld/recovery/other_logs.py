"""Remembers that the data directory was empty at a start, and who knows of another log.

Owns: the file `made`, and the rows quarantine/other-log and quarantine/other-log.<uid> (FORMAT.md).
Refuses: a log that LOCK names and that is gone (`quarantine.py`), what is answered meanwhile
(`daemon/startup/reported_logs.py`), clocks: what they say is an argument.

A mount that is not there, or another HOME, leaves an empty directory where the data should be. A
start cannot tell that from a first install. Somebody else can: a client that an earlier daemon told
of its log, the operator. Each such word is a row in quarantine/, which stands against
"nothing there" until an operator moves it away. A row of a uid speaks of that uid's replies and
sessions alone: its clients say what they like.

Invariant: which logs a uid has told of stays in `made` once its row is moved away, so that a client
which was told of nothing since does not bring the row back.
"""

from __future__ import annotations

import logging
import re
from contextlib import closing
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from walld import limits
from walld.disk.lock_record import LOCK_BYTES, LOCK_NAME, LockRecord, parse_lock
from walld.errors import FormatError
from walld.ledger.names import SESSIONS_DIR
from walld.partials.store import PARTIALS_DIR
from walld.wal.layout import QUARANTINE_DIR
from walld.wal.log_scan import list_segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walld.disk.base import Disk

__all__ = [
    "ALL_USERS",
    "MADE_PATH",
    "Made",
    "holds_data",
    "is_empty",
    "is_row",
    "known_as",
    "read_made",
    "row_name",
    "rows",
    "write_made",
    "write_row",
]

_log = logging.getLogger("walld.recovery")
MADE_PATH: Final = "made"
"""Of 0 bytes it is an operator's, who says by it that the directory is a new one."""
OTHER_LOG: Final = "other-log"
"""Name of the row of all users; that of one user has a dot and the uid behind it."""
ALL_USERS: Final = None
"""In the place of a uid: the row of all users."""
_BYTES_MAX: Final = 1024 * 1024
_row = re.compile(rf"{OTHER_LOG}(?:\.([0-9]{{1,10}}))?").fullmatch


class Made(msgspec.Struct):
    """The content of `made`.

    at_ms: when a start made the directory, or found it empty; 0: not known.

    known: logs (in hex) whose content was taken over into this directory. told: (uid, logs that it
    has told of), the newest last.
    """

    at_ms: int = 0
    known: list[str] = []
    told: list[tuple[int, list[str]]] = []

    def is_known(self, uid: int, log: str) -> bool:
        """That is no news: a row was written then, and an operator may have moved it away."""
        return log in self.known or log in self.logs_of(uid)

    def logs_of(self, uid: int) -> list[str]:
        """Logs that its clients have told of, as far as they are remembered."""
        return next((logs for one, logs in self.told if one == uid), [])

    def tell(self, uid: int, log: str) -> None:
        """A client of that uid knows of that log."""
        logs = [*self.logs_of(uid), log][-limits.OTHER_LOGS_PER_UID_MAX :]
        others = [one for one in self.told if one[0] != uid]
        self.told = [*others[1 - limits.OTHER_LOGS_UIDS_MAX :], (uid, logs)]


def is_empty(disk: Disk, lock: LockRecord) -> bool:
    """Nothing that a daemon keeps has ever stood there. lock: as it was before this start.

    A start that was killed before it wrote `made` leaves directories, and LOCK, which says that no
    segment was durable yet. False where that cannot be seen.
    """
    try:
        return _is_empty(disk, lock)
    except OSError:
        return False


def holds_data(disk: Disk) -> bool:
    """Something that a daemon keeps stands there, or an operator's word that it is a new one.

    OSError, FileNotFoundError where the directory is not there.
    """
    try:
        file = disk.open(LOCK_NAME)
    except FileNotFoundError:
        raw = b""
    else:
        with closing(file):
            raw = file.read_at(LOCK_BYTES, 0)
    try:
        lock = parse_lock(raw, LOCK_NAME)
    except FormatError:
        return True  # of another version: the start refuses it
    names = {entry.name for entry in disk.list_dir("")}
    return MADE_PATH in names or not _is_empty(disk, lock or LockRecord(0, b""))


def _is_empty(disk: Disk, lock: LockRecord) -> bool:
    names = {entry.name: entry.size for entry in disk.list_dir("")}
    if lock.had_log or names.get(MADE_PATH) or list_segments(disk):
        return False
    folders = [name for name in (PARTIALS_DIR, SESSIONS_DIR, QUARANTINE_DIR) if name in names]
    found = [entry.name for name in folders for entry in disk.list_dir(name)]
    return all(_row(name) is not None or name.startswith(".") for name in found)


def rows(disk: Disk) -> set[int | None]:
    """Whose rows nobody has moved away: uids, ALL_USERS for the row of all. OSError."""
    try:
        names = [entry.name for entry in disk.list_dir(QUARANTINE_DIR)]
    except (FileNotFoundError, NotADirectoryError):
        return set()
    found = (_row(name) for name in names)
    return {ALL_USERS if one[1] is None else int(one[1]) for one in found if one is not None}


def is_row(name: str) -> bool:
    """A name in quarantine/ that is one of these rows."""
    return _row(name) is not None


def row_name(uid: int | None) -> str:
    """Of a row, in quarantine/."""
    return OTHER_LOG if uid is None else f"{OTHER_LOG}.{uid}"


def write_row(disk: Disk, uid: int | None, why: str) -> None:
    """Durably. OSError."""
    disk.make_dir(QUARANTINE_DIR)
    disk.replace(f"{QUARANTINE_DIR}/{row_name(uid)}", f"{why}\n".encode())


def read_made(disk: Disk) -> Made:
    """What is known of how the directory began; of one that is damaged nothing is. OSError."""
    try:
        file = disk.open(MADE_PATH)
    except FileNotFoundError:
        return Made()
    try:
        text, _, crc = file.read_at(_BYTES_MAX, 0).rpartition(b" ")
    finally:
        file.close()
    if crc == f"{crc32(text):08x}\n".encode():
        try:
            return msgspec.json.decode(text, type=Made)
        except msgspec.MsgspecError:
            pass
    _log.warning("%s: is damaged: when this directory was made is not known any more", MADE_PATH)
    return Made()


def write_made(disk: Disk, made: Made) -> None:
    """Durably. OSError."""
    text = msgspec.json.encode(made)
    disk.replace(MADE_PATH, text + f" {crc32(text):08x}\n".encode())


def known_as(made: Made, logs: Iterable[bytes]) -> Made:
    """The same of a directory that the content of these logs was taken over into."""
    new = [log.hex() for log in logs if log.hex() not in made.known]
    return msgspec.structs.replace(made, known=[*made.known, *new])
