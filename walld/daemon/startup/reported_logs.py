"""Remembers which clients know of another log than this directory holds: to them nothing is proven.

Owns: the rows and the file `made` (`recovery/other_logs.py`) while a daemon runs, and the sentences
about them. Refuses: their bytes, hearing what a client knows (`transport/acceptor.py`), answers
(`api/`).

What a client says counts at once, in memory. It is written down before that client is let in: from
then on it knows this log, and would not name the other one to the next daemon.
"""

from __future__ import annotations

import logging
import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from walld import limits
from walld.daemon import event_loop
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk, patiently
from walld.errors import NoData
from walld.recovery.other_logs import (
    ALL_USERS,
    MADE_PATH,
    Made,
    holds_data,
    is_empty,
    known_as,
    read_made,
    row_name,
    rows,
    write_made,
    write_row,
)
from walld.wal.layout import QUARANTINE_DIR

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.storage.disk_threads import Worker
    from walld.disk.base import Disk
    from walld.disk.lock_record import LockRecord
    from walld.disk.reserve import Reserve

__all__ = ["OtherLogs", "check_data"]

_log = logging.getLogger("walld.recovery")


def check_data(data: str) -> None:
    """For --expect-data: NoData where the directory holds none, or is not there. Makes nothing."""
    try:
        with patiently(partial(RealDisk, data, read_only=True)) as disk:
            is_there = holds_data(RetryingDisk(disk))
    except FileNotFoundError:
        is_there = False
    if not is_there:
        named, made = shlex.quote(data), shlex.quote(os.path.join(data, MADE_PATH))
        raise NoData(
            f"{data} holds no data, and there is some (--expect-data): mount the disk that it is "
            f"on, and start again; to begin a new log there: mkdir -pm 700 {named} && touch {made}"
        )


class OtherLogs:
    """What one daemon knows of other logs."""

    def __init__(
        self,
        log_uuid: bytes,
        disk: Disk,
        reserve: Reserve,
        worker: Worker,
        noted: Callable[[], None],
    ) -> None:
        """noted: called once what was heard is written down, or could not be."""
        self._log_uuid = log_uuid
        self._disk = disk
        self._reserve = reserve
        self._worker = worker
        self._noted = noted
        self._made = Made()
        self._rows: set[int | None] = set()
        self._unwritten: dict[int | None, str] = {}
        """Rows that are to be written, by uid: what each says."""
        self._has_begun = False
        self._is_written = True
        """The file `made` says what is known here."""
        self._wanted = event_loop.Bell()

    @property
    def made_at_ms(self) -> int:
        """When a start made the directory, or found it empty; 0: not known."""
        return self._made.at_ms

    async def begin(self, data: str, lock_before: LockRecord, wall_ms: int) -> None:
        """Read what is known, before a start makes anything in the directory.

        lock_before: LOCK as it was before this start.
        """
        found = await self._worker.run(partial(_look, self._disk, lock_before))
        early = self._made.told
        self._made, self._rows = found.made, found.rows
        if found.was_empty:
            text = (
                "new directory: %s was empty, and begins anew: what another one holds is not here"
            )
            _log.warning(text, data)
            self._made.at_ms, self._is_written = wall_ms, False
        log = lock_before.log_uuid
        if lock_before.epoch and log != self._log_uuid and log.hex() not in self._made.known:
            # That log is gone, and quarantine/wal says so to everybody.
            self._made, self._is_written = known_as(self._made, [log]), False
        self._has_begun = True
        for uid, logs in early:
            for name in logs:
                self.heard(uid, bytes.fromhex(name))
        await self._try()

    def heard(self, uid: int, log: bytes) -> bool:
        """A client of that uid knows of that log. True: that is news, and to be written down before
        the client is let in.
        """
        name = log.hex()
        if not log or log == self._log_uuid or self._made.is_known(uid, name):
            return False
        if not self._has_begun:  # what is known of it stands in the directory
            self._made.tell(uid, name)
            return True
        is_news = uid not in self._rows
        if not is_news and len(self._made.logs_of(uid)) >= limits.OTHER_LOGS_PER_UID_MAX:
            return False
        self._made.tell(uid, name)
        self._is_written = False
        if is_news:
            text = (
                "a client of uid %d knows of another log than this directory has, %s: is that the "
            )
            text += "right directory, and mounted? Nothing is proven of what is not here of that "
            text += "uid until somebody has moved %s/%s away"
            _log.error(text, uid, name, QUARANTINE_DIR, row_name(uid))
            self._rows.add(uid)
            self._unwritten[uid] = f"a client of uid {uid} knows of another log: {name}"
        self._wanted.ring()
        return True

    def doubt(self, uid: int) -> str | None:
        """Why "nothing there" cannot be said to that uid; None where it can."""
        row: int | None
        if uid in self._rows:
            why, row = "clients of this user know of another log than this directory has", uid
        elif ALL_USERS in self._rows:
            why, row = "an operator knows of another log than this directory has", ALL_USERS
        else:
            return None
        return (
            f"{why}: is the right one mounted? Once {QUARANTINE_DIR}/{row_name(row)} is moved away "
            "a restart takes what is here for all there was"
        )

    @property
    def trouble(self) -> str | None:
        """The operator's own row, in words: what clients say is no trouble of the daemon."""
        if ALL_USERS not in self._rows:
            return None
        row = f"{QUARANTINE_DIR}/{row_name(ALL_USERS)}"
        return (
            f"nothing is proven absent: {row} says that there is or was another log than this "
            "directory has: is the right one mounted? Move the row away and restart to take what "
            "is here for all there was"
        )

    async def run(self) -> None:
        """Write down what was heard, for ever."""
        while True:
            await self._wanted.wait(None if self._is_written else limits.DISK_RETRY_SECONDS)
            await self._try()
            self._noted()

    async def _try(self) -> None:
        """Write what is not written yet. What cannot be counts all the same, and is tried again."""
        while not self._is_written:
            unwritten, self._unwritten, self._is_written = self._unwritten, {}, True
            try:
                write = partial(_write, self._disk, unwritten, replace(self._made))
                await self._worker.run(partial(self._reserve.lend, write))
            except OSError as error:
                _log.error("who knows of another log cannot be written down yet: %s", error)
                self._unwritten, self._is_written = unwritten | self._unwritten, False
                return


class _Found(NamedTuple):
    made: Made
    rows: set[int | None]
    was_empty: bool


def _look(disk: Disk, lock_before: LockRecord) -> _Found:
    """In the thread."""
    was_empty = is_empty(disk, lock_before)
    try:
        return _Found(Made() if was_empty else read_made(disk), rows(disk), was_empty)
    except OSError as error:  # of quarantine/ that is a doubt of everybody's (`quarantine.py`)
        _log.error("who knows of another log cannot be read: %s", error)
        return _Found(Made(), set(), was_empty=False)


def _write(disk: Disk, unwritten: dict[int | None, str], made: Made) -> None:
    """In the thread. Rows first: `made` says that they were."""
    for uid, why in unwritten.items():
        write_row(disk, uid, why)
    write_made(disk, made)
