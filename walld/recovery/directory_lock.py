"""Takes ownership of a data directory before anything in it is changed.

Versions and headers of segments are read before the lock is taken, and more of them where no
header is whole: a later version is refused untouched, and a new LOCK has the log and epoch they
name.

Owns: what a new owner is told of the log by its segments. Refuses: the lock (`disk/lock.py`),
reading the log (`startup_recovery.py`), which comes behind the lock.
"""

from __future__ import annotations

import logging
import uuid
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from walld.disk.base import NO_ROOM
from walld.disk.folded import strays_of
from walld.disk.lock import Owner
from walld.disk.lock_record import EPOCH_MAX
from walld.disk.reserve import Reserve
from walld.recovery.quarantine import log_may_be_gone, note_gone
from walld.wal.headers import check_versions, good_headers
from walld.wal.layout import QUARANTINE_DIR, WAL_DIR
from walld.wal.log_identity import proven_uuid
from walld.wal.log_scan import list_segments

if TYPE_CHECKING:
    from walld.disk.base import Disk

__all__ = ["own"]

_log = logging.getLogger("walld.recovery")


def own(data: str, disk: Disk) -> Owner:
    """Take the data directory. A log that is gone begins anew: its numbers do, so its name must.

    That another log was here is noted first; where that cannot be, LOCK goes on naming it: OSError.
    Where LOCK is lost with all segments it says from then on that there was one.
    The epoch goes beyond all there were, LOCK and the newest headers lost or not: no daemon begins
    a segment with an id below its own. NewerVersion: nothing was changed there.
    """
    ids = list_segments(disk)
    check_versions(disk, ids)
    headers = list(good_headers(disk, ids))
    known = [header.log_uuid for header in headers]
    if headers:
        log_uuid, epoch = headers[0].log_uuid, headers[0].epoch
    else:
        proven, epoch = proven_uuid(disk, ids), 0
        known = [] if proven is None else [proven]
        log_uuid = proven or uuid.uuid4().bytes
    epoch = max([epoch, *(one for one in ids if one < EPOCH_MAX)])

    def lost() -> None:
        _log.error("wal/ holds another log than LOCK names: it is taken; that one is lost")
        try:
            Reserve(disk).lend(partial(note_gone, disk, WAL_DIR))
        except OSError as error:
            what = "make room" if error.errno in NO_ROOM else "see to that"
            text = f"{error.strerror}: no later start would know that it is gone: {what}, "
            path = f"{QUARANTINE_DIR}/{WAL_DIR}"
            raise OSError(error.errno, f"{text}and start again", path) from error

    was_here = log_may_be_gone(disk)
    owner = Owner(
        data,
        log_uuid,
        epoch=epoch,
        is_new=not ids,
        known=known,
        lost=lost,
        was_here=was_here,
        has_folded=lambda: bool(strays_of(disk, is_folded=False)),
        writing=Lock(),
    )
    if owner.trouble is not None or (ids and owner.lock_before.log_uuid != owner.log_uuid):
        trouble = owner.trouble or "LOCK names another log than its segments do"
        _log.warning("%s; it is written anew, by what the segments say", trouble)
    return owner
