"""The planted bugs: one replacement in one file each, and the promise or invariant it breaks.

Owns: the list. Refuses: whether they are found (`cage.py`).

Each is a mistake that somebody could make, or once made here or in another log; a name says what
the wrong code does. Not in the list: what does the same as the right code, and what the simulation
finds too seldom to wait for (`test_zoo.py` has some of the reasons).
"""

from __future__ import annotations

from . import acks, client, kept, released, scan, sessions, started, taken, told, written
from .mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: tuple[Mutant, ...] = (
    *acks.MUTANTS,
    *released.MUTANTS,
    *written.MUTANTS,
    *started.MUTANTS,
    *scan.MUTANTS,
    *taken.MUTANTS,
    *kept.MUTANTS,
    *told.MUTANTS,
    *client.MUTANTS,
    *sessions.MUTANTS,
)
