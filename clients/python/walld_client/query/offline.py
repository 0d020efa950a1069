"""Answers from the data directory alone, without a daemon: yes, no or unknown.

Owns: when "nothing there" is proven. Refuses: reading a reply (`walld recover --data` does), locks,
writing.

The proof of "no": nobody listens, LOCK verifies, the WAL holds nothing but segment headers of the
log that LOCK names, one of which stands behind the batch that LOCK calls synced and none behind the
first that must be there, partials/ was not taken away and holds none, and quarantine/ holds nothing
that may have been of a reply. A session's name is looked for in both forms, that of a disk which
does not look at case too. They are looked at in this order: a partial is synced before its segment
goes, so bytes that leave the WAL between two looks are seen in the second. A link in the place of a
directory is not followed: what belongs there may be anywhere.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from walld_client.paths import folded_name, path_name

__all__ = ["has_any", "has_partial", "nobody_listens"]

_SEGMENT_HEADER_BYTES = 64
_SEGMENT = struct.Struct("<8sHHI16sQQQI")
_FIXED = b"walldwal", 1, _SEGMENT_HEADER_BYTES
"""What a header of this version says of itself: magic, version and length."""
_SEGMENT_NAME = re.compile(r"[0-9]{20}\.wal")
_SEGMENT_ID_MAX = 2**63 - 1
_BATCH_NO_MAX = 2**40 - 1
_LOCK_BYTES = 160
_LOCK_BYTES_OLD = 128
"""Of an older version; behind those may stand some of a later record."""
_LOCK = re.compile(
    rb"walld ([12])\nepoch ([0-9]{1,20})\nlog ([0-9a-f]{32})\n"
    rb"(?:written\n(?:synced ([0-9]{20}) (?:first ([0-9]{20}) )?([0-9a-f]{8})\n)?"
    rb"(directories\n)?)? *$"
)
_NO_REPLY = re.compile(r"sessions(\+|$)|\.|.*\.note$")
"""Names in quarantine/: what is kept of a session's file, that all of them are gone, what was never
finished, notes."""
_OTHER_LOG = re.compile(r"other-log\.([0-9]+)")
"""Clients of that uid know of another log than this directory has."""
_NOBODY = (errno.ENOENT, errno.ECONNREFUSED)


class _Lock(NamedTuple):
    """log_uuid: None where there is no LOCK. synced_no: 0 where it names no batch; first_no: 0
    where it does not say which is the first that must be there. had_dirs: partials/ was. is_folded:
    a disk that does not look at case has the directory, or had it.
    """

    log_uuid: bytes | None = None
    synced_no: int = 0
    first_no: int = 0
    had_dirs: bool = False
    is_folded: bool = False


def nobody_listens(error: BaseException | None) -> bool:
    """True where connecting failed because there is no daemon, not because it is busy or closed."""
    return isinstance(error, OSError) and error.errno in _NOBODY


def has_partial(folder: str, uid: int, session_id: str) -> bool | None:
    """Is something kept of this session? None: cannot know."""
    return _answer(folder, uid, path_name(session_id))


def has_any(folder: str, uid: int) -> bool | None:
    """Is something kept of any session of `uid`? None: cannot know."""
    return _answer(folder, uid, None)


def _answer(folder: str, uid: int, session: str | None) -> bool | None:
    try:
        lock = _lock(os.path.join(folder, "LOCK"))
        is_empty = lock is not None and _wal_is_empty(os.path.join(folder, "wal"), lock)
        own = "partials", str(uid)
        if session is None:
            is_kept: bool | None = _holds_something(folder, *own)
        elif lock is None or not lock.is_folded:
            names = {session, folded_name(session)}
            is_kept = any(_holds_something(folder, *own, name) for name in names)
        else:
            is_kept = _is_listed(folder, *own, session=session)
        if is_kept is not False:
            return is_kept
        if lock is not None and lock.had_dirs:
            is_empty &= os.path.lexists(os.path.join(folder, own[0]))
        is_empty &= not _tells_of_damage(os.path.join(folder, "quarantine"), own[1])
    except OSError:
        return None
    return False if is_empty else None


def _lock(path: str) -> _Lock | None:
    """What LOCK says; None where that does not verify, so that it may have named any batch."""
    try:
        raw = _begin_of(path, _LOCK_BYTES)
    except FileNotFoundError:
        return _Lock()
    found = _LOCK.match(raw) or _LOCK.match(raw[:_LOCK_BYTES_OLD])
    if not found or len(raw) not in (_LOCK_BYTES_OLD, _LOCK_BYTES):
        return None
    version, epoch, log, synced, first, crc, directories = found.groups()
    log_uuid = bytes.fromhex(log.decode())
    told = _Lock(log_uuid, had_dirs=directories is not None, is_folded=version == b"2")
    if crc is None:
        return told
    seed = zlib.crc32(log_uuid)
    if first is not None:
        seed = zlib.crc32(epoch.rjust(20, b"0"), seed)
    if int(crc, 16) != zlib.crc32(synced + (first or b""), seed):
        return None
    return told._replace(synced_no=int(synced), first_no=int(first or 0))


def _wal_is_empty(wal: str, lock: _Lock) -> bool:
    """Its segments hold nothing. A daemon always leaves one: where there is none it was taken, and
    where none begins behind the batch that was synced that one was cut off.

    Only the newest can have been cut short at its birth: a start renames the one that it finds.
    """
    with _directory(wal) as fd, os.scandir(fd) as found:
        segments = {one.name: one for one in found if one.name.endswith(".wal")}
        for name, entry in segments.items():
            if not (_SEGMENT_NAME.fullmatch(name) and entry.is_file(follow_symlinks=False)):
                return False
            if entry.stat(follow_symlinks=False).st_size > _SEGMENT_HEADER_BYTES:
                return False
    starts = {
        name: _begin_of(os.path.join(wal, name), _SEGMENT_HEADER_BYTES) for name in sorted(segments)
    }
    if any(len(start) < _SEGMENT_HEADER_BYTES for start in list(starts.values())[:-1]):
        return False
    return _begins_behind(starts, lock)


def _begins_behind(starts: dict[str, bytes], lock: _Lock) -> bool:
    """One of these headers says so, and each that verifies is of this log and of its segment.

    One that does not is no header at all: what stood behind it would be there. And LOCK names no
    batch before them that must be there still.
    """
    log_uuid, last_no = lock.log_uuid, -1
    for name, start in starts.items():
        if len(start) < _SEGMENT_HEADER_BYTES or zlib.crc32(start[:-4]) != _crc_of(start):
            continue
        magic, version, _, size, of_log, segment_id, before_no, *_ = _SEGMENT.unpack(start[:-4])
        log_uuid = log_uuid or of_log
        if (magic, version, size) != _FIXED or of_log != log_uuid or segment_id != int(name[:20]):
            return False
        if segment_id > _SEGMENT_ID_MAX or before_no > _BATCH_NO_MAX:
            return False
        last_no = max(last_no, before_no)
    is_all_gone = not lock.first_no or last_no < lock.first_no
    return last_no >= lock.synced_no and is_all_gone


def _crc_of(header: bytes) -> int:
    return int.from_bytes(header[-4:], "little")


def _begin_of(path: str, length: int) -> bytes:
    """The first bytes of a file. OSError. What is planted there is not followed or waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", path)
        return os.pread(fd, length, 0)
    finally:
        os.close(fd)


@contextmanager
def _directory(path: str) -> Iterator[int]:
    """A descriptor of it. OSError, FileNotFoundError only where nothing has that name."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _holds_something(folder: str, *names: str) -> bool:
    """The innermost of these directories does; each must be one, as far as they are there."""
    path, is_held = folder, False
    try:
        for name in names:
            path = os.path.join(path, name)
            with _directory(path) as fd, os.scandir(fd) as entries:
                is_held = any(True for _ in entries)
    except FileNotFoundError:
        return False
    return is_held


def _is_listed(folder: str, *own: str, session: str) -> bool | None:
    """Its directory holds something. By the names that are listed: asked for one, a disk that does
    not look at case gives another session's. None: a start that was killed had not renamed one yet
    in which a build that did not know such disks may have put replies of both.
    """
    if not _holds_something(folder, *own):
        return False
    with _directory(os.path.join(folder, *own)) as fd:
        names = os.listdir(fd)
    near = [name for name in names if name.lower() == session.lower()]
    forms = {session, folded_name(session)}.intersection(names)
    if any(_holds_something(folder, *own, name) for name in forms):
        return True
    return None if any(name != name.lower() and name != session for name in near) else False


def _tells_of_damage(quarantine: str, uid: str) -> bool:
    """Something there may be of a reply of `uid`; what clients of others know of is not."""
    try:
        with _directory(quarantine) as fd, os.scandir(fd) as entries:
            names = [entry.name for entry in entries if not _NO_REPLY.match(entry.name)]
    except FileNotFoundError:
        return False
    others = (_OTHER_LOG.fullmatch(name) for name in names)
    return any(one is None or one[1] == uid for one in others)
