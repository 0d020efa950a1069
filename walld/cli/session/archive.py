"""walld session archive: a session into one compressed file, which takes its place.

Owns: which session may go, the file, the order of it all. Refuses: the text of the file
(`foreign/archive_text.py`), bringing it back (`import_file.py`).

The order, of each session:

1. Judge: nothing of it is open, and no other session waits for it.
2. Write the file under a hidden name, sync it, read it back, compare it byte for byte with what the
   daemon gives once more; give it its name, sync the directory.
3. Judge again, by the last event that the file has: nothing was begun meanwhile.
4. Delete the session where it still ends with that event (DeleteAt).

Invariant: a file that has its name is whole, and nothing here writes or removes it again: another
that archives the session may have deleted it because of that file. So whenever this is killed the
session is there, or its whole file is, or both: then the same command finds the file, compares it
and goes on. A session that was gone on with has an older archive beside it.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import os
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
from walld_client.errors import Refused, Unsupported
from walld_client.paths import path_name
from walld_client.query.requests import decode_bytes
from walld_client.wire import messages as wire

from walld.cli.client import Unavailable
from walld.cli.exit_codes import CANNOT, DONE, NOTHING, USAGE, complain
from walld.cli.session_client import SessionClient
from walld.cli.show import as_json
from walld.errors import FormatError, WalldError
from walld.escape import escaped_line
from walld.foreign import archive_text
from walld.ledger.line import line_seq
from walld.sessions.gate.children import open_children
from walld.sessions.state.entries import events_of
from walld.sessions.state.events import link_of

__all__ = ["lines_of", "run"]

_SUFFIX: Final = ".walld.gz"
_OF_THE_WORKSPACE: Final = ("workspace_not_compared", "workspace_unknown")
"""Reasons of the gate that say nothing of the session: nobody looks at a workspace here."""
_ENDED: Final = ("completed", "interrupted")
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024


_GONE_ON: Final = "it was gone on with meanwhile"


class _Kept(Exception):
    """Why a session stays where it is."""


class _Gone(Exception):
    """There is no such session."""


class _Archived(NamedTuple):
    session: str
    file: str
    events: int
    bytes: int


class _Told(NamedTuple):
    """What became of each. kept, failed: session -> why it stays; why nobody knows."""

    archived: list[_Archived]
    kept: dict[str, str]
    failed: dict[str, str]


def run(asking: SessionClient, options: argparse.Namespace) -> int:
    """Archive the session, or all that are old."""
    if (options.session is None) == (options.older_than is None):
        complain("archive: name one SESSION, or --older-than AGE")
        return USAGE
    folder = Path(options.to)
    if not options.to or not folder.is_dir():
        complain(f"--to {options.to}: there is no such directory")
        return USAGE
    told = _Told([], {}, {})
    if options.session is None:
        return _all_old(asking, options, folder, told)
    try:
        _one(asking, options.session, folder, told)
    except _Gone:
        if (before := _earlier(options.session, folder)) is None:
            complain(f"there is no session {options.session}")
            return NOTHING
        told.archived.append(before)
    if options.json:
        _print_json(told)
    else:
        _say(options.session, told)
    return CANNOT if told.kept else DONE


def _all_old(asking: SessionClient, options: argparse.Namespace, folder: Path, told: _Told) -> int:
    """One that fails or is slow keeps no other; a daemon that is not there ends it."""
    wanted = _old(asking, options.older_than)
    try:
        for session_id in wanted:
            is_cut = False
            try:
                _one(asking, session_id, folder, told)
            except _Gone:
                continue  # somebody deleted it meanwhile
            except Unsupported:
                raise
            except (WalldError, OSError) as why:
                told.failed[session_id] = str(why)
                is_cut = isinstance(why, Unavailable)
            if not options.json:
                _say(session_id, told)
            if is_cut:
                asking.reconnect()
    finally:
        if options.json:
            _print_json(told)
    return CANNOT if told.kept or told.failed else DONE


def _one(asking: SessionClient, session_id: str, folder: Path, told: _Told) -> None:
    try:
        told.archived.append(_archive(asking, session_id, folder))
    except Unsupported:
        raise
    except (_Kept, Refused) as why:
        told.kept[session_id] = str(why)


def _say(session_id: str, told: _Told) -> None:
    if session_id in told.kept:
        complain(f"session {session_id} stays: {told.kept[session_id]}")
    elif session_id in told.failed:
        complain(f"session {session_id}: {told.failed[session_id]}")
    else:
        one = told.archived[-1]
        print(escaped_line(f"archived: {session_id}, {one.events} events, {one.file}"), flush=True)


def _print_json(told: _Told) -> None:
    reasons = {
        name: [{"session": session_id, "reason": why} for session_id, why in found.items()]
        for name, found in (("kept", told.kept), ("failed", told.failed))
    }
    print(as_json({"archived": [one._asdict() for one in told.archived], **reasons}))


def _old(asking: SessionClient, seconds: float) -> list[str]:
    """Those whose last event is older, by the clocks of day that stamped it and of this machine.

    One from the future, or of a time that is not known, is not old.
    """
    answer = asking.ask(lambda number: wire.Sessions(number, ""))
    before_ms = (time.time() - seconds) * 1000
    found = msgspec.msgpack.decode(answer, type=list[wire.SessionFacts])
    return [one.session_id for one in found if 0 < one.last_at_ms < before_ms]


def _archive(asking: SessionClient, session_id: str, folder: Path) -> _Archived:
    """Raises _Kept, _Gone; WalldError and OSError where nobody knows."""
    last_seq, newest = _at_rest(asking, session_id)
    path = folder / f"{path_name(session_id)}.{last_seq}{_SUFFIX}"
    with _held(path) as (temporary, file):
        if is_new := not path.exists():
            _write(file, _text(asking, session_id, last_seq))
        if not _is_same(temporary if is_new else path, _text(asking, session_id, last_seq)):
            if is_new:
                raise WalldError(f"{temporary} does not read back as it was written")
            raise _Kept(
                f"{path} is there, and no archive of it: move it away, or name another --to"
            )
        if is_new:
            temporary.rename(path)
        _sync(folder)
        size = path.stat().st_size
        try:
            if _at_rest(asking, session_id) != (last_seq, newest):
                raise _Kept(_GONE_ON)
            _delete(asking, session_id, last_seq)
        except _Gone:
            pass  # somebody deleted it, another archive of it, say: the file is whole
        except Unsupported:
            complain(f"session {session_id} stays, and {path} has it up to event {last_seq}")
            raise
        except (_Kept, Refused) as why:
            raise _Kept(f"{why}; {path} has it up to event {last_seq}") from None
    return _Archived(session_id, str(path), last_seq, size)


def _at_rest(asking: SessionClient, session_id: str) -> tuple[int, str | None]:
    """Its last seq, and the id of that event. Raises _Kept where something of it is open."""
    state = asking.view(session_id, "state")
    gate = asking.view(session_id, "resume")
    if gate is None:
        raise _Gone
    if replies := gate.get("replies"):
        raise _Kept(f"reply {replies[0]['stream_id']} is not released: adopt, or resolve it")
    if state is None:
        raise _Gone
    for turn in state["turns"]:
        if turn["state"] not in _ENDED:
            raise _Kept(f"turn {turn['turn_id']} has not ended: it is {turn['state']}")
    for reason in gate["reasons"]:
        if reason["code"] not in _OF_THE_WORKSPACE:
            raise _Kept(f"its gate is {gate['status']}: {reason['message']}")
    for link in asking.view(session_id, "find", type="child_of") or ():
        _check_unneeded(asking, session_id, link["payload"])
    return state["last_seq"], gate["as_of"]


def _check_unneeded(asking: SessionClient, session_id: str, work: dict[str, Any]) -> None:
    """_Kept where it is the work of a call of another session, and that has no result there yet: it
    would be looked for here. No view of it tells: to them what the child said is the result.
    """
    if (link := link_of(work)) is None:
        return  # an application's own entry of that type
    # Before the lines: what moves from a reply to the session meanwhile is in the lines.
    gate = asking.view(link.session, "resume")
    if gate is None:
        return
    which = f"it is the work of call {link.call_id} of session {link.session}"
    if replies := gate["replies"]:
        raise _Kept(f"{which}: reply {replies[0]['stream_id']} there is not released")
    waiting = open_children(events_of(asking.lines(link.session) or ()))
    if any(one.payload["session"] == session_id for one in waiting):
        raise _Kept(f"{which}: it has no result there")


def _text(asking: SessionClient, session_id: str, last_seq: int) -> Iterator[bytes]:
    """The lines of its archive, as the daemon gives them now."""
    lines = asking.lines(session_id)
    if lines is None:
        raise _Gone

    def artifact(digest: str) -> bytes:
        raw = bytes.fromhex(digest)
        return decode_bytes(asking.ask(lambda number: wire.GetArtifact(number, session_id, raw)))

    return archive_text.text(session_id, last_seq, _up_to(lines, last_seq), artifact)


def _up_to(lines: Iterator[bytes], last_seq: int) -> Iterator[bytes]:
    seq = 0
    for line in lines:
        seq = line_seq(line)
        yield line
    if seq != last_seq:
        raise _Kept(_GONE_ON)


def _delete(asking: SessionClient, session_id: str, last_seq: int) -> None:
    try:
        asking.ask(lambda number: wire.DeleteAt(number, session_id, last_seq))
    except Refused as refused:
        if refused.code not in ("stale", "unreleased"):
            raise
        raise _Kept(_GONE_ON) from None


# --- the file ---------------------------------------------------------------------------------


@contextmanager
def _held(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The hidden name of a file in the making, for this process alone; gone behind it, where it was
    not renamed. One that a kill left is written anew.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    while True:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "r+b") as file:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _Kept(f"another walld archives it to {path}") from None
            if not _is_at(temporary, fd):
                continue  # whoever held it has given it its name, or taken it away
            _check_own(temporary, fd)
            try:
                yield temporary, file
            finally:
                if _is_at(temporary, fd):
                    temporary.unlink()
            return


def _check_own(path: Path, fd: int) -> None:
    """In a folder that others may write to, it may be theirs to read."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        raise WalldError(f"{path} is there, and not a file of this user's alone: remove it")
    os.fchmod(fd, 0o600)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _write(file: BinaryIO, lines: Iterator[bytes]) -> None:
    file.truncate(0)
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        for line in lines:
            packed.write(line)
    file.flush()
    os.fsync(file.fileno())
    # What is compared then comes from the disk, where it can.
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _is_same(path: Path, lines: Iterator[bytes]) -> bool:
    """Whether the file holds these lines. A kill may have left one that was never synced."""
    try:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            pairs = zip_longest(lines_of(file, str(path)), lines)
            return all(one == other for one, other in pairs)
    except FormatError:
        return False


def lines_of(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a compressed file from its beginning. FormatError where it is cut or damaged."""
    file.seek(0)
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as packed:
            while line := packed.readline(_LINE_BYTES_MAX + 1):
                if len(line) > _LINE_BYTES_MAX:
                    raise FormatError(f"{name}: a line of more than {_LINE_BYTES_MAX} bytes")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(f"{name}: cut or damaged: {error}") from None


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _earlier(session_id: str, folder: Path) -> _Archived | None:
    """The newest archive there of a session that is gone: it was deleted, and nobody was told."""
    found: list[_Archived] = []
    for path in folder.glob(f"{path_name(session_id)}.*{_SUFFIX}"):
        with suppress(FormatError, OSError), open(path, "rb") as file:
            held = archive_text.read(lines_of(file, str(path)))
            if held.session_id == session_id:
                size = path.stat().st_size
                found.append(_Archived(session_id, str(path), held.last_seq, size))
    return max(found, key=lambda one: one.events, default=None)
