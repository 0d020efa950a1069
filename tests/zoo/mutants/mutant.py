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
    """old stands in the file once; new takes its place. promise: its number in a page.

    plan: what found it last, as `make sim SEED=` has it. What changes when in the daemon changes
    plans: where it kills no more, one of those of other bugs may, and `make zoo` names that.
    """

    name: str
    path: str
    old: str
    new: str
    promise: str
    plan: str
