"""Planted bugs: what a start makes of what an earlier daemon left."""

from __future__ import annotations

from .mutant import DAEMON, Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        "a start believes what an earlier daemon may have failed to sync",
        "walld/recovery/startup_recovery.py",
        "    failed = resync(disk, log_uuid, _tails(log, segments, verdict))\n",
        "    failed = resync(disk, log_uuid, {})\n",
        "P4",
        "190",
    ),
    Mutant(
        "a start writes the end of a log again and does not sync it",
        "walld/recovery/tail_fsync.py",
        "            file.write_at(data, offset)\n        file.sync()\n",
        "            file.write_at(data, offset)\n",
        "P4",
        "1891",
    ),
    Mutant(
        "a start takes every stream for an orphan",
        DAEMON + "startup/restore_streams.py",
        "    process = watch(found.begin.uid, owner)\n",
        "    process = watch(found.begin.uid, owner) if found.terminal else None\n",
        "L2",
        "1891",
    ),
)
