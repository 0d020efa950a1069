"""Which sessions may have lines in unreadable parts of the log.

Owns: what of the log is lost or unread, how many lines it may hold, and which sessions it says
nothing about. Refuses: what is damage (`wal/verdict.py`), what a session answers meanwhile
(`daemon/session_store/files.py`).

Lines stand in the log alone until a checkpoint, so damage there may cost any session its newest
ones. It cost none to a session whose lines go on behind it; and where a session has leapt over the
seqs that may have been given, it says so itself: in its file `repaired` stands for which damage.

Invariants
- Y1 A seq that may have been given is not given again, and no gate is ok while a start may be among
  lines that cannot be read. A session that is not there may have been written, then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from walld import limits
from walld.ledger.names import SESSIONS_DIR
from walld.partials.store import PARTIALS_DIR
from walld.recovery.other_logs import is_row
from walld.recovery.quarantine import is_cut
from walld.wal.index import OFFSET_BITS
from walld.wal.layout import QUARANTINE_DIR, SEGMENT_HEADER_BYTES, WAL_DIR, segment_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from walld.disk.base import Disk
    from walld.recovery.startup_recovery import Found, RecoveredStorage
    from walld.wal.verdict import Damage

__all__ = ["LogDoubt", "doubt_of", "with_all_gone"]

_LINE_BYTES_MIN: Final = 125
_LINES_MAX: Final = 1 << 17
"""More lines than there is memory for are not outside of their files at a time."""
_sized: Final = re.compile(r"\d{20}\.\d+\.\d+|\d{20}\.wal|stream-\d+").fullmatch

assert limits.LEDGER_BYTES_MAX // _LINE_BYTES_MIN < _LINES_MAX


class LogDoubt(NamedTuple):
    """names: paths of what is not read. fresh: those that no earlier start has met so.

    lines_max: as many lines may stand there. may_return: a later start may read some of it.
    beyond: sessions whose lines go on behind all that is fresh.
    """

    why: str
    names: frozenset[str]
    fresh: frozenset[str]
    lines_max: int
    may_return: bool
    beyond: frozenset[tuple[int, str]]

    def settled_by(self, key: tuple[int, str]) -> frozenset[str]:
        """What a session that had leapt before this start cannot have lost anything to."""
        return self.names if key in self.beyond else self.names - self.fresh

    def is_of(self, key: tuple[int, str], known: Container[str]) -> bool:
        """The session may have lost lines. known: what it has leapt for."""
        own = self.fresh if key in self.beyond else frozenset[str]()
        return any(name not in own and name not in known for name in self.names)


def doubt_of(disk: Disk, recovered: RecoveredStorage) -> LogDoubt | None:
    """What a start leaves in doubt; None where the log tells all."""
    verdict = recovered.verdict
    sizes: dict[str, int | None] = {}
    for one in verdict.corrupt:
        sizes |= _kept_as(disk, one)
    for one in verdict.unreadable:
        sizes[f"{WAL_DIR}/{segment_name(one.segment_id)}"] = one.length or None
    fresh = frozenset(sizes)
    for name, size in _in_quarantine(disk).items():
        sizes[f"{QUARANTINE_DIR}/{name}"] = size
    sizes = {name: size for name, size in sizes.items() if _may_hold_lines(name, size)}
    fresh = fresh.intersection(sizes)
    for name in recovered.unnoted_dirs:
        if name != PARTIALS_DIR:
            sizes[f"{QUARANTINE_DIR}/{name}"] = None
    if not sizes:
        return None
    lines = sum(_LINES_MAX if size is None else size // _LINE_BYTES_MIN for size in sizes.values())
    return LogDoubt(
        _why(sizes),
        frozenset(sizes),
        fresh,
        min(lines + 1, _LINES_MAX),
        bool(verdict.unreadable),
        frozenset(_beyond(recovered)),
    )


def with_all_gone(doubt: LogDoubt | None) -> LogDoubt:
    """The same once somebody has removed sessions/ beneath the daemon: any may have been there."""
    names = frozenset({f"{QUARANTINE_DIR}/{SESSIONS_DIR}"})
    if doubt is None:
        return LogDoubt(_why(names), names, frozenset(), _LINES_MAX, False, frozenset())
    names |= doubt.names
    return doubt._replace(why=_why(names), names=names, lines_max=_LINES_MAX)


def _why(names: Iterable[str]) -> str:
    named = ", ".join(sorted(names)[:5])
    return (
        f"lines of it may stand in what cannot be read of the log ({named}): "
        "see `walld fsck`; once that can be read, or was looked at and moved away, a restart knows"
    )


def _may_hold_lines(name: str, size: int | None) -> bool:
    """The bytes of a segment's header hold none, nor do less than one takes."""
    begins = SEGMENT_HEADER_BYTES if f".0.{size}" in name else 0
    return size is None or size - begins >= _LINE_BYTES_MIN


def _kept_as(disk: Disk, damage: Damage) -> dict[str, int | None]:
    """What is left of it, with its bytes, and what says that more was there (`quarantine.keep`)."""
    note: dict[str, int | None] = {
        f"{QUARANTINE_DIR}/batches-{damage.first_no}-{damage.last_no}": None
    }
    if not (damage.segment_id and damage.length):
        return note
    copy = f"{QUARANTINE_DIR}/{damage.segment_id:020d}.{damage.offset}.{damage.length}"
    return {copy: damage.length} | (note if is_cut(disk, damage) else {})


def _in_quarantine(disk: Disk) -> dict[str, int | None]:
    """What lies there of the log, with the bytes that lines may be among; None: not known."""
    none = (".", f"{SESSIONS_DIR}+", f"{PARTIALS_DIR}+")
    of_replies = PARTIALS_DIR  # all of them gone: what was in there were no lines
    try:
        return {
            entry.name: entry.size if _sized(entry.name) else None
            for entry in disk.list_dir(QUARANTINE_DIR)
            if entry.name != of_replies
            and not is_row(entry.name)
            and not (entry.name.startswith(none) or entry.name.endswith(".note"))
        }
    except OSError:
        return {"": None}


def _beyond(recovered: RecoveredStorage) -> set[tuple[int, str]]:
    """Sessions with a line that was written behind all that this start cannot read."""
    verdict = recovered.verdict
    damage = [*verdict.corrupt, *verdict.unreadable]
    last_no = max((one.last_no for one in damage), default=0)
    unread_id = max((one.segment_id for one in verdict.unreadable), default=0)
    segment_of = {no: one.segment_id for one in recovered.segments for no, _ in one.batches}

    def is_beyond(found: Found) -> bool:
        if found.index.carried:  # where it stood first is not known
            return False
        batch_no = found.index.where[-1] >> OFFSET_BITS
        return batch_no > last_no and segment_of.get(batch_no, 0) > unread_id

    return {
        (found.begin.uid, found.begin.session_id)
        for found in recovered.streams.values()
        if found.begin is not None and not found.begin.producer and is_beyond(found)
    }
