"""Answers without a daemon: yes, no or unknown, from the data directory alone.

Owns: when "nothing there" is proven. Refuses: reading a reply (`walld recover --data` does), locks,
writing.

The proof of "no": nobody listens, the WAL holds nothing but segment headers, one of which stands
behind the batch that LOCK calls synced, there is no partial, and quarantine/ holds nothing that may
have been of a reply. They are looked at in this order: a
partial is synced before its segment goes, so bytes that leave the WAL between two looks are seen in
the second.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from walld_client.paths import path_name

__all__ = ["has_any", "has_partial", "nobody_listens"]

_SEGMENT_HEADER_BYTES = 64
_PREV_BATCH_NO_AT = 40
_LOCK_BYTES = 128
_SYNCED = re.compile(rb"\nwritten\nsynced ([0-9]{20}) ")
_NO_REPLY = re.compile(r"sessions\+|\.|.*\.note$")
"""Names in quarantine/: what is kept of a session's file, what was never finished, notes."""
_NOBODY = (errno.ENOENT, errno.ECONNREFUSED)


def nobody_listens(error: BaseException | None) -> bool:
    """True where connecting failed because there is no daemon, not because it is busy or closed."""
    return isinstance(error, OSError) and error.errno in _NOBODY


def has_partial(folder: str, uid: int, session_id: str) -> bool | None:
    """Is something kept of this session? None: cannot know."""
    return _answer(folder, os.path.join(folder, "partials", str(uid), path_name(session_id)))


def has_any(folder: str, uid: int) -> bool | None:
    """Is something kept of any session of `uid`? None: cannot know."""
    return _answer(folder, os.path.join(folder, "partials", str(uid)))


def _answer(folder: str, partials: str) -> bool | None:
    try:
        synced_no = _synced_no(os.path.join(folder, "LOCK"))
        is_empty = _wal_is_empty(os.path.join(folder, "wal"), synced_no)
        if _holds_something(partials):
            return True
        is_empty &= not _tells_of_damage(os.path.join(folder, "quarantine"))
    except OSError:
        return None
    return False if is_empty else None


def _synced_no(lock: str) -> int:
    """The batch that LOCK names, 0 where there is none: a reader of the log checks its CRC."""
    try:
        found = _SYNCED.search(_begin_of(lock, _LOCK_BYTES))
    except FileNotFoundError:
        return 0
    return int(found[1]) if found else 0


def _wal_is_empty(wal: str, synced_no: int) -> bool:
    """Its segments hold nothing. A daemon always leaves one: where there is none it was taken, and
    where none begins behind the batch that was synced that one was cut off.
    """
    with os.scandir(wal) as found:
        entries = list(found)
    is_empty = all(
        entry.stat(follow_symlinks=False).st_size <= _SEGMENT_HEADER_BYTES
        if entry.is_file(follow_symlinks=False)
        else not entry.name.endswith(".wal")
        for entry in entries
    )
    segments = [entry.path for entry in entries if entry.name.endswith(".wal")]
    return is_empty and any(_begins_behind(path, synced_no) for path in segments)


def _begins_behind(segment: str, synced_no: int) -> bool:
    """It has its header, and that says so: what was cut below it may have held anything."""
    header = _begin_of(segment, _SEGMENT_HEADER_BYTES)
    before = header[_PREV_BATCH_NO_AT : _PREV_BATCH_NO_AT + 8]
    return len(header) == _SEGMENT_HEADER_BYTES and int.from_bytes(before, "little") >= synced_no


def _begin_of(path: str, length: int) -> bytes:
    """The first bytes of a file. OSError. What is planted there is not followed or waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", path)
        return os.pread(fd, length, 0)
    finally:
        os.close(fd)


def _holds_something(partials: str) -> bool:
    try:
        with os.scandir(partials) as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False


def _tells_of_damage(quarantine: str) -> bool:
    try:
        with os.scandir(quarantine) as entries:
            return any(not _NO_REPLY.match(entry.name) for entry in entries)
    except FileNotFoundError:
        return False
