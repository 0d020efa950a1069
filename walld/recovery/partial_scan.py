"""Scans partials at a start and sets aside those that cannot be used.

Owns: reading every header, setting aside what is no partial of its place, and the word on what
could not be read. Refuses: the files (`partials/store.py`), bodies, but for two of one number, for
one that may be cut short, and for one that does not tell whose it is.

Invariants: nothing that lies there is a reason not to start (P9), and none of it is passed over in
silence: what is damaged, or no file, goes to quarantine with a note, and is never followed; what
the kernel cannot read stays where it is, since that may pass, and "nothing" is not proven (P11).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walld.errors import FormatError
from walld.partials.file import PartialFacts
from walld.partials.store import PARTIALS_DIR, PartialStore, Stray, path_of
from walld.replies.merge import seqs_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PartialScan", "find_partials"]

_log = logging.getLogger("walld.recovery")
_CUT_SHORT = ("corrupt", "unknown")
"""What the gaps of one are put down to that may have less than its header says."""
_Names = tuple[int, str, str]
"""Uid, session name and stream name."""


@dataclass(slots=True)
class PartialScan:
    """facts: of those that can be used. unread: those that lie there and are known by name alone.

    held: the last seq that stands in one which damage, or what could not be read, has cut short;
    its header says the highest seq that the reply may have reached.
    undurable: those whose names could not be synced, which power may take. unreadable: files and
    directories of which the kernel gave nothing.
    """

    facts: dict[_Names, PartialFacts] = field(default_factory=dict)
    held: dict[_Names, int] = field(default_factory=dict)
    undurable: set[_Names] = field(default_factory=set)
    unread: list[_Names] = field(default_factory=list)
    unreadable: int = 0

    def held_seqs(self, log_uuid: bytes) -> dict[int, int]:
        """Of each stream of a log, the last seq that stands in its partial."""
        return {
            facts.stream_no: self.held.get(names, facts.last_seq)
            for names, facts in self.facts.items()
            if facts.log_uuid == log_uuid
        }

    @property
    def doubt(self) -> str | None:
        """Why "nothing there" cannot be proven; None where it can."""
        if not self.unreadable:
            return None
        return (
            f"{self.unreadable} places in {PARTIALS_DIR}/ could not be read: see `walld fsck`; "
            "once they can, a restart can prove what is left"
        )


def find_partials(store: PartialStore, unsynced: Iterable[Stray] = ()) -> PartialScan:
    """All of them. unsynced: directories whose names may not be durable."""
    found, strays = PartialScan(), list[Stray]()
    doubted = {stray.path for stray in unsynced}
    for stray in unsynced:
        _log.error("%s: cannot be synced: %s", stray.path, stray.why)
    for uid, sessions in store.tree(strays).items():
        for session, names in sessions.items():
            for name in names:
                whose = uid, session, name
                _take(store, found, whose)
                above = PARTIALS_DIR, f"{PARTIALS_DIR}/{uid}", path_of(*whose).rpartition("/")[0]
                if not doubted.isdisjoint(above):
                    found.undurable.add(whose)
    for stray in strays:
        if stray.may_pass:
            _unreadable(found, stray.path, stray.why)
        else:
            _set_aside(store, found, stray.path, f"{stray.path}: {stray.why}")
    _part_doubles(store, found)
    for whose, facts in list(found.facts.items()):
        if facts.gap_word in _CUT_SHORT or facts.whose is None:
            _look_into(store, found, whose)
    return found


def _take(store: PartialStore, found: PartialScan, names: _Names) -> None:
    """One header. An I/O error is not a bad CRC."""
    try:
        found.facts[names] = store.read_facts(*names)
    except FormatError as error:
        _set_aside(store, found, path_of(*names), str(error))
    except OSError as error:
        _unreadable(found, path_of(*names), error.strerror or str(error))
        found.unread.append(names)


def _unreadable(found: PartialScan, path: str, why: str) -> None:
    _log.error("%s: cannot be read: %s; it stays where it is", path, why)
    found.unreadable += 1


def _set_aside(store: PartialStore, found: PartialScan, path: str, why: str) -> None:
    """Into quarantine; where that fails it stays, and is judged again at the next start."""
    try:
        kept = store.quarantine(path, why)
    except OSError as error:
        _log.error("%s; it cannot be moved to quarantine: %s", why, error)
        found.unreadable += 1
    else:
        _log.error("%s; moved to %s", why, kept)


def _part_doubles(store: PartialStore, found: PartialScan) -> None:
    """Of several partials of one stream at most one is used: its resolve must leave none behind.

    There are two where a daemon was killed between writing that of a moved reply and removing the
    earlier one, which holds nothing that the later does not. An earlier one that can be neither
    read, removed nor set aside stays, and is not counted as the reply. It goes at a start that can
    remove it, also where its tombstone is gone by then (`partials/tombstone_file.py`).
    """
    by_no: dict[tuple[bytes, int], list[_Names]] = {}
    for names, facts in found.facts.items():
        by_no.setdefault((facts.log_uuid, facts.stream_no), []).append(names)
    for doubles in by_no.values():
        if len(doubles) == 1:
            continue
        whole = {names for names in doubles if _look_into(store, found, names)}
        known = {names: found.facts[names] for names in doubles if names in found.facts}
        if not known:
            continue
        *earlier, last = sorted(known, key=lambda one: (known[one].last_seq, known[one].made_at_ms))
        for names in earlier:
            if whole >= {names, last} and known[names].last_seq < known[last].last_seq:
                _remove(store, found, names)
            elif whole >= {names, last}:
                path = path_of(*names)
                _set_aside(store, found, path, f"{path}: another is of its stream")
            del found.facts[names]


def _look_into(store: PartialStore, found: PartialScan, names: _Names) -> bool:
    """Its body too, by which it is of its place, and how far it goes."""
    try:
        _, items = store.read_reply(*names)
    except FormatError as error:
        _set_aside(store, found, path_of(*names), str(error))
        del found.facts[names]
        return False
    except OSError as error:
        _unreadable(found, path_of(*names), error.strerror or str(error))
        return False
    found.held[names] = seqs_of(items[-1])[1]
    return True


def _remove(store: PartialStore, found: PartialScan, names: _Names) -> None:
    try:
        store.remove_named(*names)
    except OSError as error:
        _log.error("%s: cannot be removed, a later one is there: %s", path_of(*names), error)
        found.unreadable += 1
