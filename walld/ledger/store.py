"""Files of sessions: append-only lines, grown by checkpoints.

Owns: sessions/<uid>/<session>/events.jsonl: appending, its torn end, a new file after a failed
sync, reading, listing, deleting. Refuses: what the lines mean (`sessions/`), when a checkpoint is
due (`daemon/`), threads: one at a time for a session.

A checkpoint may be repeated at any time with the lines that are still in the log: it ends in the
same bytes. What it is given must be synced in the log before, so that whatever a power cut leaves
of it is given again.

Invariants
- E1 When `append` or `rewrite` has returned, its lines survive power loss: file, name, directories.
- E2 Bytes that are no whole line, and are not written again as they were, are in quarantine before
  they are cut off. A whole line is never cut off, but where the log has another one of its seq
  that was made for another line before it, and what follows such a one (`append_position.py`).
- E3 A file whose sync or write failed is never synced again: the next lines go to a new one, with
  what was whole before them, renamed over it (P8).
- E4 A file of a later version is never written to.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from walld.disk.base import NO_ROOM
from walld.errors import SharedFile
from walld.ledger.append_position import check_follows, find_end, find_place, whole_header
from walld.ledger.deleted import Deleted
from walld.ledger.files import (
    blocks_of,
    erase_kept,
    keep_bytes,
    keep_part,
    sync_name,
    write_anew,
    write_whole,
)
from walld.ledger.intents import IntentStore
from walld.ledger.line import chain_of, header_line, line_seq
from walld.ledger.line_scan import FoundLine
from walld.ledger.listing import folders, session_rows
from walld.ledger.names import ARTIFACTS_DIR, EVENTS_FILE, SESSIONS_DIR, session_dir
from walld.ledger.repair_notes import (
    Leap,
    keep_holes,
    leaps_of,
    note_leap,
    noted_seq,
    repair_file,
    unknown_breaks,
)
from walld.ledger.runs import Run, read_page
from walld.ledger.scan import Break, Reading, read_lines
from walld.ledger.sweep import sweeping
from walld.ledger.tail import claimed_seq, end_break, end_seam
from walld.limits import LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from walld.disk.base import Disk, File
    from walld.ledger.append_position import AppendPosition
    from walld.ledger.intents import Room
    from walld.ledger.listing import SessionRow
    from walld.ledger.pending import Pending

__all__ = ["LedgerStore", "Tail"]


class Tail(NamedTuple):
    """The end of a session's file. last_seq 0: it has a header and no line.

    chain: what the next line's is. size: offset behind the last whole line. torn_bytes: what lies
    there; the log has those lines, or they were damaged.
    """

    last_seq: int
    chain: bytes
    size: int
    torn_bytes: int


class LedgerStore:
    """The sessions below one data directory."""

    def __init__(self, disk: Disk, room: Room | None = None) -> None:
        self._disk = disk
        self.intents = IntentStore(disk, room)
        self.deleted = Deleted(disk)
        self._failed: set[str] = set()
        """Files that are never synced again (E3)."""

    # --- writing --------------------------------------------------------------------------------

    def append(
        self,
        uid: int,
        session_id: str,
        first_seq: int,
        lines: list[bytes],
        *,
        allow_gap: bool = False,
    ) -> int:
        """Add lines, durably (E1). Returns the seq of the last of them.

        Those that are there already are compared and written once more in their place. LedgerGap
        where they do not follow what is there, unless allow_gap (the break is then reported by each
        reading); FormatError where another line has one of their seqs. After OSError: call it
        again, with these lines and maybe more. A new file is made of one that cannot be trusted any
        more, or has another name.
        """
        last_seq = _check(first_seq, lines)
        path = _path(uid, session_id)
        if path in self._failed:
            return self.rewrite(uid, session_id, first_seq, lines, allow_gap=allow_gap)
        header = header_line(uid, session_id)
        try:
            file = self._disk.reopen(path)
        except FileNotFoundError:
            return self._create(path, header, first_seq, lines, allow_gap)
        except SharedFile:
            return self.rewrite(uid, session_id, first_seq, lines, allow_gap=allow_gap)
        try:
            place = find_place(file, header, first_seq, lines, allow_gap=allow_gap)
            if self._keep(file, place) and place.fits:
                self._overwrite(file, place)
            else:
                self._write_anew(file, place)
        finally:
            file.close()
        if place.start < place.size:  # by a process that may have died before its name was durable
            sync_name(self._disk, path)
        return last_seq

    def rewrite(
        self,
        uid: int,
        session_id: str,
        first_seq: int,
        lines: list[bytes],
        *,
        allow_gap: bool = False,
    ) -> int:
        """The same into a new file, with what is whole before the lines, renamed over (E3)."""
        last_seq = _check(first_seq, lines)
        path = _path(uid, session_id)
        header = header_line(uid, session_id)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return self._create(path, header, first_seq, lines, allow_gap)
        try:
            place = find_place(file, header, first_seq, lines, allow_gap=allow_gap)
            self._keep(file, place)
            self._write_anew(file, place)
        finally:
            file.close()
        sync_name(self._disk, path)
        return last_seq

    def repair(self, uid: int, session_id: str, covers_seq: int = 0) -> list[Break]:
        """Damaged bytes go to quarantine, and breaks are written down as known. Returns those.

        A reading does not report them any more, nor skips anything that it gave before. covers_seq:
        as for `proven`. Only where the log holds no line of the session.
        """
        path, header = _path(uid, session_id), header_line(uid, session_id)
        until = self.proven(uid, session_id, covers_seq)
        try:
            reading = self.read(uid, session_id, until=until)
        except FileNotFoundError:
            if not until:
                raise
            self._disk.make_dir(path.rpartition("/")[0])
            self._disk.replace(path, header)
            reading = self.read(uid, session_id, until=until)
        if reading.breaks or reading.torn_bytes:
            repair_file(self._disk, path, header, reading.breaks)
        return reading.breaks

    def keep_damaged(self, uid: int, session_id: str, *, also_end: bool) -> int:
        """Copy what is no line to quarantine, the file stays as it is. Returns places.

        also_end: what stands behind the last line, too. The same bytes are copied once.
        """
        path, header = _path(uid, session_id), header_line(uid, session_id)
        return keep_holes(self._disk, path, header, also_end=also_end)

    def keep(self, uid: int, session_id: str, lines: list[bytes]) -> str:
        """Put lines that are not the session's into quarantine, durably. Returns where they are."""
        path = _path(uid, session_id)
        tail = self.tail(uid, session_id)
        reason = "lines of the log behind a place that a crash tore, never synced"
        return keep_bytes(self._disk, path, tail.size if tail else 0, b"".join(lines), reason)

    def note_leap(self, uid: int, session_id: str, leap: Leap) -> None:
        """Before the first line behind it: what the session has leapt over, and why; durable."""
        note_leap(self._disk, _path(uid, session_id), leap)

    def leaps(self, uid: int, session_id: str) -> list[Leap]:
        """What it has leapt over."""
        return leaps_of(self._disk, _path(uid, session_id))

    def delete(self, uid: int, session_id: str) -> bool:
        """Remove all there is of a session, quarantine included, durably. False: nothing was there.

        After a crash within it, it is called again: the events go last.
        """
        folder = session_dir(uid, session_id)
        artifacts, parent = f"{folder}/{ARTIFACTS_DIR}", folder.rpartition("/")[0]
        events = f"{folder}/{EVENTS_FILE}"
        files = [*self._files(artifacts), *self._files(folder)]
        files.sort(key=events.__eq__)
        kept = erase_kept(self._disk, folder)
        for path in files:
            if path == events and len(files) > 1:
                # Without events a snapshot tells of damage: none may come back without them.
                self._disk.sync_dir(folder)
            self._disk.unlink(path)
        self._failed.discard(events)
        for path in (artifacts, folder, parent):
            self._disk.remove_dir(path)
        for path in (folder, parent, SESSIONS_DIR):
            with suppress(FileNotFoundError):
                self._disk.sync_dir(path)
        return bool(files or kept)

    def sweep_temporary(self) -> int:
        """Remove what a crash left unfinished, and empty directories. Returns files.

        All names that are left are durable afterwards. Only for the owner of the data directory,
        before anything is written.
        """
        return sum(self.sweeping())

    def sweeping(
        self, spared: Callable[[str], bool] = lambda _: False, failed: list[str] | None = None
    ) -> Iterator[int]:
        """The same a session at a time: `sweep.py`."""
        return sweeping(self._disk, spared, failed)

    # --- reading --------------------------------------------------------------------------------

    def has_files(self, uid: int, session_id: str) -> bool:
        """Anything lies there, artifacts alone too."""
        return bool(self._disk.list_dir(session_dir(uid, session_id)))

    def exists(self, uid: int, session_id: str) -> bool:
        """It was written."""
        try:
            self._disk.open(_path(uid, session_id)).close()
        except FileNotFoundError:
            return False
        return True

    def length(self, uid: int, session_id: str) -> int:
        """Bytes of its file, 0 where there is none."""
        try:
            file = self._disk.open(_path(uid, session_id))
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def tail(self, uid: int, session_id: str, known_seq: int = 0) -> Tail | None:
        """Where it ends; None where it was never written. Reads the last lines. NewerVersion.

        known_seq: it may well have gone so far; where it seems not to, all of it is read (J4).
        """
        try:
            file = self._disk.open(_path(uid, session_id))
        except FileNotFoundError:
            return None
        try:
            size = file.size()
            end, clean, _ = find_end(file, size, header_line(uid, session_id), known_seq)
        finally:
            file.close()
        return Tail(end.seq, chain_of(end.line), end.end, size - clean)

    def read(
        self,
        uid: int,
        session_id: str,
        after: int = 0,
        limit: int = 0,
        from_offset: int | None = None,
        until: int = 0,
        pending: Pending | None = None,
        held_bytes_max: int = 0,
    ) -> Reading:
        """The lines behind seq `after`, at most `limit` (0: all), and every break among them.

        from_offset: where the caller believes the line `after` ends (a snapshot says so); wrong
        ones only cost time. until: up to there lines were in the file (`proven`). pending: the
        first that the log has; from there on may stand half. held_bytes_max: of more bytes than
        that the runs, for `page`. FileNotFoundError, NewerVersion.
        """
        path = _path(uid, session_id)
        file = self._disk.open(path)
        try:
            expected = header_line(uid, session_id)
            header = whole_header(file, expected)
            there, size = header or expected, file.size()
            read = partial(
                read_lines,
                is_headed=header is not None,
                pending=pending,
                held_bytes_max=held_bytes_max,
            )
            reading = read(file, size, there, after, limit, from_offset)
            if after and from_offset is None and reading.breaks:
                # In a copy of a block each line but the first follows the one before it.
                reading = read(file, size, there, after, limit, 0)
            if until and not (limit and reading.total == limit):
                lost = end_break(size, reading.end, after, until)
                if lost is not None and after:  # or a long block in a wrong place misled it
                    reading = read(file, size, there, after, limit, 0)
                    lost = end_break(size, reading.end, after, until)
                if lost is not None:
                    reading.breaks.append(lost)
        finally:
            file.close()
        breaks = unknown_breaks(self._disk, path, reading.breaks)
        if header is None:
            breaks = [Break(0, 1, 0, "header"), *breaks]
        return reading._replace(breaks=breaks)

    def page(
        self, uid: int, session_id: str, run: Run, bytes_max: int
    ) -> tuple[list[bytes], Run | None]:
        """The first lines of a run that `read` gave, and the run behind them: `runs.py`.

        FormatError, FileNotFoundError where they are not there any more.
        """
        file = self._disk.open(_path(uid, session_id))
        try:
            return read_page(file, run, bytes_max)
        finally:
            file.close()

    def text(self, uid: int, session_id: str, offset: int) -> bytes:
        """The bytes of its file from `offset` on, up to the end of the last line of a piece; b""
        where no line ends there. Whole or damaged: nobody has looked. FileNotFoundError.
        """
        file = self._disk.open(_path(uid, session_id))
        try:
            text = file.read_at(2 * LEDGER_LINE_BYTES_MAX, offset)
        finally:
            file.close()
        return text[: text.rfind(b"\n") + 1]

    def proven(self, uid: int, session_id: str, covers_seq: int = 0) -> int:
        """The highest seq that is known to have been in the file; 0 where nothing was (Z1).

        No file is ever made without a line: in one that has none the first was lost at least.
        Only where the log holds no line of the session. covers_seq: of a snapshot. NewerVersion.
        """
        path = _path(uid, session_id)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return covers_seq
        try:
            size = file.size()
            end, _, seq = find_end(file, size, header_line(uid, session_id))
            if path not in self._failed:  # else the end may be an unfinished write of this process
                seq = max(seq, claimed_seq(file, end.end, size, end.seq))
        finally:
            file.close()
        return max(seq, 1, covers_seq, noted_seq(self._disk, path, end_seam(end.line)))

    def users(self) -> set[int]:
        """Who has a directory for sessions."""
        names = (one.rpartition("/")[2] for one in folders(self._disk, SESSIONS_DIR))
        return {int(name) for name in names if name.isascii() and name.isdigit()}

    def tree(self) -> Iterator[SessionRow]:
        """All sessions. Reads the first and the last line of each."""
        return session_rows(self._disk)

    # --- within ---------------------------------------------------------------------------------

    def _create(
        self, path: str, header: bytes, first_seq: int, lines: list[bytes], allow_gap: bool
    ) -> int:
        """A file is whole, with its first lines, from the moment it has its name."""
        if not allow_gap:
            check_follows(path, FoundLine(0, 0, header), first_seq, lines[0])
        self._disk.make_dir(path.rpartition("/")[0])
        self._disk.replace(path, b"".join([header, *lines]))
        self._failed.discard(path)
        return first_seq + len(lines) - 1

    def _keep(self, file: File, place: AppendPosition) -> bool:
        """False: the file itself is in quarantine, and not to be written to any more."""
        reason = "the torn end of a session's file, or what a power cut left of it"
        return not place.is_lost or keep_part(self._disk, file, place.start, place.end, reason)

    def _overwrite(self, file: File, place: AppendPosition) -> None:
        """Write and sync. A full disk costs nothing but the try; after any other error, E3."""
        size = place.size
        try:
            if place.is_lost and place.end == place.size:
                size = place.start
                file.truncate(size)
            write_whole(file, place.content, place.start)
        except OSError as error:
            self._failed.add(file.path)
            if error.errno in NO_ROOM:
                with suppress(OSError):
                    file.truncate(size)
                    self._failed.discard(file.path)
            raise
        try:
            file.sync()
        except OSError:
            self._failed.add(file.path)
            raise

    def _write_anew(self, file: File, place: AppendPosition) -> None:
        def blocks() -> Iterator[bytes]:
            yield from blocks_of(file, 0, place.start)
            yield place.content
            yield from blocks_of(file, place.end, place.size)

        write_anew(self._disk, file.path, blocks())
        self._failed.discard(file.path)

    def _files(self, folder: str) -> list[str]:
        """All that can be removed: names of NFS go by themselves."""
        entries = self._disk.list_dir(folder)
        names = [e.name for e in entries if e.kind != "dir" and not e.name.startswith(".nfs")]
        return [f"{folder}/{name}" for name in names]


def _check(first_seq: int, lines: list[bytes]) -> int:
    assert lines, "a checkpoint of nothing"
    for seq, line in enumerate(lines, first_seq):
        assert line_seq(line) == seq, (seq, line)
    return first_seq + len(lines) - 1


def _path(uid: int, session_id: str) -> str:
    return f"{session_dir(uid, session_id)}/{EVENTS_FILE}"
