"""What a planted bug is.

Owns: the form. Refuses: which there are (the modules beside), whether they are found (`cage.py`).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CLIENT", "DAEMON", "DISK", "ENGINE", "LEDGER", "REPLIES", "WAL", "Mutant"]

CLIENT = "clients/python/walld_client/"
DAEMON = "walld/daemon/"
DISK = "walld/disk/"
ENGINE = "walld/engine/"
LEDGER = "walld/ledger/"
REPLIES = "walld/replies/"
WAL = "walld/wal/"


class Mutant(NamedTuple):
    """old stands in the file once; new takes its place. promise: its number in ARCHITECTURE.md."""

    name: str
    path: str
    old: str
    new: str
    promise: str
