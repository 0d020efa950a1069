"""`walld salvage`: copies what is readable of a damaged data directory into a new one.

Owns: the new directory, and what is said in it of the rest. Exit 0 everything was readable, 1
something was lost or is in doubt, 2 nothing could be taken. Refuses: writing to the old directory,
ever; reading it (`salvage_reader.py`); naming the damage (`fsck.py`); the account
(`salvage_account.py`).

Every reply that is not released becomes a partial, under its own ids: a daemon that starts there
takes the log as new and serves them like any other. What nobody can ask for goes to quarantine/.
First of all stands there that this has not come to its end: a salvage that was killed, or found no
room, leaves a directory whose daemon proves nothing by what is missing (P11). So does one beside
a daemon that wrote meanwhile: what it took is of no one instant, and that is said.
Sessions are `session_salvage.py`'s.
"""

from __future__ import annotations

import argparse
import errno
import os
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Final

from walld_client.paths import path_name

from walld.cli.inspect import directory_scan, fsck
from walld.cli.inspect.salvage_account import SalvageAccount, Taken, lines
from walld.cli.inspect.salvage_reader import SalvagedStream, SalvageReader
from walld.cli.inspect.session_salvage import SessionSalvage
from walld.cli.progress import Progress
from walld.cli.show import as_json
from walld.daemon.transport import credentials
from walld.disk.base import Disk
from walld.disk.folded import FoldedDisk, looks_at_case
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.errors import ConfigError, FormatError, WalldError
from walld.escape import escaped_line
from walld.partials.file import PartialFacts
from walld.partials.names import fitting, name_aside, session_of
from walld.partials.store import PARTIALS_DIR, PartialStore, path_of
from walld.recovery.other_logs import Made, write_made
from walld.recovery.quarantine import AWAY, is_spoiled
from walld.replies.merge import merge, seqs_of
from walld.wal import ranges
from walld.wal.layout import QUARANTINE_DIR, SEGMENT_HEADER_BYTES, WAL_DIR
from walld.wal.records import Begin, encode_item, join_items

__all__ = ["run"]

NOTE: Final = f"{QUARANTINE_DIR}/salvage"
"""What could not be taken; until the end that there is an end to come."""

_UNFINISHED: Final = b"salvage has not come to its end: not all that could be taken is here\n"
_WENT_ON: Final = (
    "the log was written to while it was read: what came meanwhile is not here, and what was "
    "released may be; stop the daemon and salvage again"
)
_CONTENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of a file that is copied as it is: a disk can make one a TiB long."""
_NO_SUCH_NAME: Final = frozenset((errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL))
"""What a file system of another kind says of a name: the next file may have one that it takes."""
PROGRESS_REPLIES_MIN = 100
"""Each is synced with its directories: from so many on it takes long enough for a bar."""


def run(options: argparse.Namespace) -> int:
    """Exit 0, 1 or 2."""
    with RealDisk(options.directory, read_only=True) as real:
        disk = RetryingDisk(directory_scan.named(real))
        directory_scan.check_directory(disk)
        _check_target(options.directory, options.to)
        before = _segments(disk)
        report = fsck.inspect(disk, options.directory)
        with RealDisk(options.to) as target:
            account = SalvageAccount(options.directory, options.to)
            try:
                target.replace(AWAY, _UNFINISHED)  # a start puts it into quarantine/ itself
                is_folded = not looks_at_case(options.to, AWAY)
                folded = FoldedDisk(target, is_folded=True) if is_folded else target
                _Salvage(disk, folded, account).run(report, before)
            except OSError as error:
                if not os.listdir(options.to):
                    raise
                # Not removed: of a disk that dies it may be all that anybody reads of it again.
                raise WalldError(f"{error}; {_left(options.to)}") from error
    print(as_json(asdict(account)) if options.json else "\n".join(lines(account)))
    return account.code


def _check_target(directory: str, to: str) -> None:
    """ConfigError where the new directory could overwrite or contain anything of the old one."""
    inner, outer = os.path.realpath(to), os.path.realpath(directory)
    if os.path.commonpath([inner, outer]) == outer:
        raise ConfigError(f"--to {to} lies in {directory}, which is only read: name another place")
    try:
        names = os.listdir(to)
    except FileNotFoundError:
        return
    if names:
        text = f"holds {len(names)} entries, it must hold 0 or not exist"
        if _is_unfinished(to):
            text += f"; {_left(to)}"
            raise ConfigError(f"--to {to} {text}, or name another place")
        raise ConfigError(f"--to {to} {text}: name another place")


def _left(to: str) -> str:
    """What to do about a salvage that came to no end."""
    return f"{to} holds what a salvage took that did not come to its end: remove it to begin anew"


def _is_unfinished(to: str) -> bool:
    for path in (AWAY, NOTE):
        with suppress(OSError), open(os.path.join(to, path), "rb") as note:
            return note.read(len(_UNFINISHED)) == _UNFINISHED
    return False


def _segments(disk: Disk) -> set[tuple[str, int]]:
    """Names and lengths: any write that adds something shows there."""
    return {(entry.name, entry.size) for entry in directory_scan.entries(disk, WAL_DIR)}


class _Salvage:
    """One run, from one directory into the other."""

    def __init__(self, disk: Disk, target: Disk, account: SalvageAccount) -> None:
        self._disk = disk
        self._target = target
        self._store = PartialStore(target)
        self._account = account
        self._sessions = SessionSalvage(disk, target, self._set_aside)
        self._boot_id = credentials.boot_id()
        self._made_at_ms = time.time_ns() // 1_000_000
        self._written: dict[tuple[int, str], dict[str, bytes]] = {}
        """Uid and stream name -> paths of the partials that stand there; whose each is."""
        self._before = b""
        """What stood in the old directory's own note."""
        self._has: dict[int, list[ranges.Range]] = {}
        """Stream number -> seqs that were taken, of streams that lost something."""

    def run(self, report: fsck.Report, before: set[tuple[str, int]]) -> None:
        """Take everything, then say what of the report is still missing. before: the segments when
        the first look was taken. AWAY is there.
        """
        self._target.make_dir(QUARANTINE_DIR)
        self._target.rename(AWAY, NOTE)
        self._target.sync_dir(QUARANTINE_DIR)
        self._target.sync_dir("")
        for name in (WAL_DIR, PARTIALS_DIR):
            self._target.make_dir(name)
        hurt = {lost.stream_no for one in report.damage for lost in one.lost}
        gathering = SalvageReader(self._disk)
        log_uuid = gathering.log_uuid or bytes(16)
        try:
            for path in gathering.apart:
                self._copy_partial(path)
            with Progress("writing replies", gathering.count, PROGRESS_REPLIES_MIN) as bar:
                for number, found in enumerate(gathering.streams()):
                    bar.reached(number)
                    no = found.stream_no
                    known_seq = max(gathering.possible_last_seq(no), found.kept_seq)
                    self._stream(found, log_uuid, gathering.gap_word(no), hurt, known_seq)
        finally:
            gathering.close()
        synced_no = gathering.verdict.synced_no  # by the log alone, as a start judges its lines
        self._sessions.log.judged(synced_no, met_damage=report.met_damage)
        self._account.sessions = self._sessions.run(gathering.log_uuid)
        for damaged in gathering.damaged:
            self._account.unread.append(f"{damaged.path}: {damaged.why}")
            self._set_aside(damaged.path, damaged.why)
        doubts = [*report.notes, *gathering.doubts]
        doubts += [] if _segments(self._disk) == before else [_WENT_ON]
        self._account.doubts = list(dict.fromkeys(doubts))
        self._account.released_partials = gathering.released
        self._account.tombstones_doubted = gathering.tombstones_doubted
        self._copy_quarantine()
        if gathering.log_uuid is not None:  # whose clients are not to be told that it is missing
            write_made(self._target, Made(known=[gathering.log_uuid.hex()]))
        self._end_deletes()
        self._account.unread += self._sessions.unread
        self._account.missing = [one for one in report.damage if self._is_missing(one)]
        self._note_missing()

    def _end_deletes(self) -> None:
        """And what is gone with them was not taken."""
        account = self._account
        account.deleted = self._sessions.end_deletes()
        account.sessions = [one for one in account.sessions if one.key not in account.deleted]
        left = {entry.name for entry in self._target.list_dir(QUARANTINE_DIR)}
        kept = [path for path in account.quarantined if path.rpartition("/")[2] in left]
        account.quarantined = kept

    def _note_missing(self) -> None:
        """In the new directory, whose log is whole: its daemon is not to prove from that log that
        there is nothing of a reply, while this says what was lost of the old one (P11).
        """
        grave = [one for one in self._account.missing if self._is_grave(one)]
        said = [line.strip() for one in grave for line in fsck.about(one)]
        of_sessions = set(self._sessions.unread)
        said += [f"unreadable: {why}" for why in self._account.unread if why not in of_sessions]
        said += [f"in doubt: {doubt}" for doubt in self._account.doubts]
        text = "".join(
            f"{line}\n" for line in ["salvage could not take:", *map(escaped_line, said)]
        )
        note = self._before + text.encode("utf-8", "backslashreplace") * bool(said)
        if note:
            self._target.replace(NOTE, note)
        else:
            self._target.unlink(NOTE)
            self._target.sync_dir(QUARANTINE_DIR)

    def _is_grave(self, finding: fsck.Finding) -> bool:
        """What a crash leaves was acknowledged to nobody; a header is spoiled by none."""
        if finding.verdict != "torn":
            return True
        is_headless = finding.reason == "segment header"
        return is_headless and is_spoiled(self._disk, finding.segment, finding.length)

    # --- replies --------------------------------------------------------------------------------

    def _stream(
        self,
        found: SalvagedStream,
        log_uuid: bytes,
        word: str | None,
        hurt: set[int],
        known_seq: int,
    ) -> None:
        """One stream: a partial, or quarantine where nobody could ask for it.

        known_seq: the highest it has, or may have reached.
        """
        no = found.stream_no
        self._account.unread += [f"stream {no}: {why}" for why in found.unread]
        begin = found.begin
        if begin is None:
            self._nameless(found, "its beginning is lost")
            return
        if not begin.producer:  # lines of a session: never a reply
            self._sessions.log.add(no, begin, found.items)
            if no in hurt:
                self._has[no] = ranges.merged(seqs_of(item) for item in found.items)
            return
        try:
            items = merge(found.items)
        except FormatError as error:
            self._nameless(found, str(error))
            return
        seqs = [seqs_of(item) for item in items]
        if no in hurt:
            self._has[no] = ranges.merged(seqs)
        last_seq = max(seqs[-1][1], known_seq)
        taken = Taken(begin.uid, session_of(begin, items), begin.stream_id, no, last_seq)
        taken.segments = sorted(found.segments)
        taken.from_partial = found.facts is not None
        taken.from_bad_batches = found.doubtful
        taken.gaps = ranges.without([(0, taken.last_seq)], ranges.merged(seqs))
        taken.is_open = bool(taken.gaps) and taken.gaps[-1][1] == last_seq
        before = found.facts.gap_word if found.facts is not None else "dropped"
        if found.in_parts and before == "dropped":
            before = "unknown"  # to a start that could not read it, as the next one has it
        taken.gap_word = word or before
        reason = found.facts.lost_reason if found.facts is not None else self._lost_reason(begin)
        facts = PartialFacts(
            log_uuid, no, begin.at_ms, self._made_at_ms, 0, taken.last_seq, reason, taken.gap_word
        )
        self._make_room(begin, taken)
        body = join_items([encode_item(item) for item in items])
        self._store.write(begin.uid, taken.session_id, taken.stream_id, facts, body)
        self._account.taken.append(taken)

    def _make_room(self, begin: Begin, taken: Taken) -> None:
        """A producer gives an id again only after a release: of two of its own the later one is the
        reply. Of two of several each is, but where it would stand in the other's place.
        """
        path = _path(taken)
        others = self._written.setdefault((begin.uid, path_name(begin.stream_id)), {})
        for earlier, producer in list(others.items()):
            if earlier != path and producer != begin.producer:
                continue
            why = "its id was given again, so it had been released; its tombstone is lost"
            if producer != begin.producer:
                why = "another has its id in the same session"
                self._account.unread.append(f"{earlier}: {why}")
            self._account.quarantined.append(self._store.quarantine(earlier, why))
            self._account.taken = [one for one in self._account.taken if _path(one) != earlier]
            del others[earlier]
        others[path] = begin.producer

    def _lost_reason(self, begin: Begin) -> str | None:
        """As a daemon would say of its owner; None where that is alive."""
        if begin.owner.boot_id != self._boot_id:
            return "host_restart"
        pidfd = credentials.find_process(begin.owner)
        if pidfd is None:
            return "agent_lost"
        os.close(pidfd)
        return None

    def _nameless(self, found: SalvagedStream, why: str) -> None:
        """Bodies that nobody can ask for, as a start keeps them."""
        if not found.bodies:
            return
        path = f"{QUARANTINE_DIR}/stream-{found.stream_no}"
        self._target.replace(path, b"".join(found.bodies))
        self._account.quarantined.append(path)
        text = f"{len(found.bodies)} records are kept in {path}"
        self._account.unread.append(f"stream {found.stream_no}: {why}; {text}")

    # --- files as they are ------------------------------------------------------------------------

    def _copy_partial(self, path: str) -> None:
        """A partial of another log: byte by byte."""
        content = self._content(path)
        if content is not None:
            _, uid, _, stream_name = path.split("/")
            self._target.make_dir(path.rpartition("/")[0])
            if self._copy(path, path, content):
                self._written.setdefault((int(uid), stream_name), {})[path] = b""
                self._account.copied_partials.append(path)

    def _set_aside(self, path: str, why: str) -> None:
        """A damaged partial, with the note that a start would write."""
        content = self._content(path)
        if content is not None:
            kept = f"{QUARANTINE_DIR}/{name_aside(path)}"
            if self._copy(path, kept, content, why):
                self._account.quarantined.append(kept)

    def _copy_quarantine(self) -> None:
        """What earlier starts have set aside; a name that is taken keeps what is newer."""
        taken = {entry.name for entry in self._target.list_dir(QUARANTINE_DIR)}
        taken.remove(NOTE.rpartition("/")[2])
        for entry in directory_scan.entries(self._disk, QUARANTINE_DIR):
            path = f"{QUARANTINE_DIR}/{entry.name}"
            is_note = entry.name.endswith(".note")
            name = fitting(entry.name.removesuffix(".note")) + ".note" * is_note
            if name.startswith(".") or name in taken:
                continue
            if entry.kind != "file":  # a directory that somebody moved there, with all that it has
                self._account.unread.append(f"{path}: is no file, and is not taken")
                continue
            content = self._content(path)
            if content is None:
                continue
            if path == NOTE:  # the old directory was made by salvage itself
                self._before = content
                self._account.quarantined.append(path)
                continue
            kept = f"{QUARANTINE_DIR}/{name}"
            why = "" if is_note or name == entry.name else "its name was too long"
            if self._copy(path, kept, content, why):
                self._account.quarantined.append(kept)

    def _copy(self, path: str, new_path: str, content: bytes, why: str = "") -> bool:
        """False, which is said, where the new directory has no such name. why: for a note of it."""
        note = f"from: {path}\nreason: {why}\n".encode("utf-8", "backslashreplace")
        try:
            if why:
                self._target.replace(f"{new_path}.note", note)
            self._target.replace(new_path, content)
        except OSError as error:
            if error.errno not in _NO_SUCH_NAME:
                raise
            self._account.unread.append(f"{path}: cannot be copied: {error.strerror}")
            return False
        return True

    def _content(self, path: str) -> bytes | None:
        """None where it cannot be read, which is said."""
        try:
            file = self._disk.open(path)
            try:
                size = file.size()
                if size <= _CONTENT_BYTES_MAX:
                    return file.read_at(size, 0)
                self._account.unread.append(f"{path}: {size} bytes: copy it yourself")
                return None
            finally:
                file.close()
        except OSError as error:
            self._account.unread.append(f"{path}: {error.strerror}")
            return None

    # --- what is missing ------------------------------------------------------------------------

    def _is_missing(self, finding: fsck.Finding) -> bool:
        """True where damage cost something; losses that were taken after all are struck out."""
        finding.lost = [
            replace(lost, first_seq=first_seq, last_seq=last_seq)
            for lost in finding.lost
            for first_seq, last_seq in ranges.without(
                [(lost.first_seq, lost.last_seq)], self._has.get(lost.stream_no, [])
            )
        ]
        if finding.lost or finding.lost_more or finding.verdict == "unreadable":
            return True
        if finding.records is not None:
            return finding.records != finding.records_verify
        if finding.reason == "segment header" and not finding.first_batch:
            return finding.length > SEGMENT_HEADER_BYTES
        return bool(finding.first_batch) or finding.reason == "header"


def _path(taken: Taken) -> str:
    """Of its partial."""
    return path_of(taken.uid, path_name(taken.session_id), path_name(taken.stream_id))
