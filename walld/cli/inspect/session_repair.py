"""`walld session repair`: moves damaged bytes out of a session's file and notes the loss.

Owns: the verb, offline. Refuses: what a repair does (`ledger/repair_notes.py`), inventing what is
lost, and a directory that a daemon owns: it alone knows what is on its way to the file.

Exit codes: 0 repaired or nothing to repair, 3 there is no such session, 1 not now.
"""

from __future__ import annotations

import argparse
import os

from walld.cli.exit_codes import CANNOT, DONE, NOTHING, complain
from walld.cli.inspect import directory_scan
from walld.cli.inspect.log_lines import LogLines
from walld.cli.inspect.session_damage import missing_told
from walld.cli.show import as_json
from walld.disk.base import Disk
from walld.disk.lock import holding
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.escape import escaped_line
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.wal.log_scan import LogScan

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """The verb."""
    uid = os.geteuid() if options.uid is None else options.uid
    with RealDisk(options.data, read_only=True) as disk:
        directory_scan.check_directory(disk)
    with holding(options.data), RealDisk(options.data) as disk:
        return _repaired(directory_scan.named(disk), uid, options)


def _repaired(disk: Disk, uid: int, options: argparse.Namespace) -> int:
    session_id = options.session
    lines, patient = LogLines(), RetryingDisk(disk)
    log = LogScan(patient, directory_scan.log_of(patient).log_uuid)
    directory_scan.scan(patient, log, "reading the log", lines.take)
    if (uid, session_id) in lines.keys():  # noqa: SIM118  it is no mapping
        text = "has lines in the log: start walld on it and end it (SIGTERM), then repair it"
        complain(f"session {session_id} {text}")
        return CANNOT
    covers = SnapshotStore(disk).covers(uid, session_id)
    try:
        breaks = LedgerStore(disk).repair(uid, session_id, covers)
    except FileNotFoundError:
        complain(f"there is no session {session_id} of uid {uid}")
        return NOTHING
    told = [one._asdict() for one in breaks]
    if options.json:
        print(as_json({"session": session_id, "uid": uid, "breaks": told}))
        return DONE
    word = "repaired" if told else "nothing to repair"
    print(f"session {escaped_line(session_id)}, uid {uid}: {word}")
    for line in missing_told(told, []):
        print(line)
    return DONE
