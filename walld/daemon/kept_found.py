"""The partials that a start finds, and what it does about those that it cannot use.

Owns: reading every header, setting aside what is no partial of its place, and the word on what
could not be read. Refuses: the files (`partials/store.py`), bodies, but for two of one number.

Invariants: nothing that lies there is a reason not to start (P9), and none of it is passed over in
silence: what is damaged, or no file, goes to quarantine with a note, and is never followed; what
the kernel cannot read stays where it is, since that may pass, and "nothing" is not proven (P11).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walld.errors import FormatError
from walld.partials.store import PARTIALS_DIR, PartialFacts, PartialStore, Stray
from walld.wal.scan import READ_TRIES

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["KeptFound", "find_partials"]

_log = logging.getLogger("walld.mend")
_Names = tuple[int, str, str]
"""Uid, session name and stream name."""


@dataclass(slots=True)
class KeptFound:
    """facts: of those that can be used. unread: those that lie there and are known by name alone.

    undurable: those whose names could not be synced, which power may take. unreadable: files and
    directories of which the kernel gave nothing.
    """

    facts: dict[_Names, PartialFacts] = field(default_factory=dict)
    undurable: set[_Names] = field(default_factory=set)
    unread: list[_Names] = field(default_factory=list)
    unreadable: int = 0

    @property
    def doubt(self) -> str | None:
        """Why "nothing there" cannot be proven; None where it can."""
        if not self.unreadable:
            return None
        return (
            f"it is not among what can be read; but {self.unreadable} places in {PARTIALS_DIR}/ "
            "could not be read: see `walld fsck`; once they can, a restart can prove what is left"
        )


def find_partials(store: PartialStore, unsynced: Iterable[Stray] = ()) -> KeptFound:
    """All of them. unsynced: directories whose names may not be durable."""
    found, strays = KeptFound(), list[Stray]()
    doubted = {stray.path for stray in unsynced}
    for stray in unsynced:
        _log.error("%s: cannot be synced: %s", stray.path, stray.why)
    for uid, sessions in store.tree(strays).items():
        for session, names in sessions.items():
            for name in names:
                whose = uid, session, name
                _take(store, found, whose)
                above = PARTIALS_DIR, f"{PARTIALS_DIR}/{uid}", _path(whose, "session")
                if not doubted.isdisjoint(above):
                    found.undurable.add(whose)
    for stray in strays:
        if stray.may_pass:
            _unreadable(found, stray.path, stray.why)
        else:
            _set_aside(store, found, stray.path, f"{stray.path}: {stray.why}")
    _part_doubles(store, found)
    return found


def _path(names: _Names, of: str = "stream") -> str:
    uid, session, name = names
    folder = f"{PARTIALS_DIR}/{uid}/{session}"
    return folder if of == "session" else f"{folder}/{name}"


def _take(store: PartialStore, found: KeptFound, names: _Names) -> None:
    """One header. An I/O error is not a bad CRC: it is read again before it is believed."""
    for tried in range(1, READ_TRIES + 1):
        try:
            found.facts[names] = store.read_facts(*names)
        except FormatError as error:
            _set_aside(store, found, _path(names), str(error))
        except OSError as error:
            if tried < READ_TRIES:
                continue
            _unreadable(found, _path(names), error.strerror or str(error))
            found.unread.append(names)
        return


def _unreadable(found: KeptFound, path: str, why: str) -> None:
    _log.error("%s: cannot be read: %s; it stays where it is", path, why)
    found.unreadable += 1


def _set_aside(store: PartialStore, found: KeptFound, path: str, why: str) -> bool:
    """Into quarantine; where that fails it stays, and is judged again at the next start."""
    try:
        kept = store.quarantine(path, why)
    except OSError as error:
        _log.error("%s; it cannot be moved to quarantine: %s", why, error)
        found.unreadable += 1
        return False
    _log.error("%s; moved to %s", why, kept)
    return True


def _part_doubles(store: PartialStore, found: KeptFound) -> None:
    """Of several that are of one stream at most one goes on: its resolve must leave none behind.

    Where a daemon was killed between the partial of a moved reply and the removal of the earlier
    one, that one holds nothing that the later does not.
    """
    by_no: dict[tuple[bytes, int], list[_Names]] = {}
    for names, facts in found.facts.items():
        by_no.setdefault((facts.log_uuid, facts.stream_no), []).append(names)
    for doubles in by_no.values():
        if len(doubles) == 1:
            continue
        whole = [names for names in doubles if _is_of_its_place(store, found, names)]
        whole.sort(key=lambda names: (found.facts[names].last_seq, found.facts[names].made_at_ms))
        for names in whole[:-1]:
            if found.facts[names].last_seq < found.facts[whole[-1]].last_seq:
                _remove(store, found, names)
            elif _set_aside(
                store, found, _path(names), f"{_path(names)}: another is of its stream"
            ):
                del found.facts[names]


def _is_of_its_place(store: PartialStore, found: KeptFound, names: _Names) -> bool:
    try:
        store.read_reply(*names)
    except FormatError as error:
        if _set_aside(store, found, _path(names), str(error)):
            del found.facts[names]
        return False
    except OSError as error:
        _unreadable(found, _path(names), error.strerror or str(error))
        return False
    return True


def _remove(store: PartialStore, found: KeptFound, names: _Names) -> None:
    try:
        store.remove_named(*names)
    except OSError as error:
        _log.error("%s: cannot be removed, a later one is there: %s", _path(names), error)
        return
    del found.facts[names]
