"""The report of `walld salvage`: what it copied, what is missing, what is in doubt.

Owns: that account, its exit code and its lines. Refuses: taking anything (`salvage.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walld.cli.exit_codes import CANNOT, DONE
from walld.cli.inspect import fsck
from walld.cli.inspect.session_damage import session_taken
from walld.escape import escaped_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.cli.inspect.log_lines import Key
    from walld.cli.inspect.session_salvage import TakenSession

__all__ = ["SalvageAccount", "Taken", "lines"]

NOTHING_TAKEN = 2


@dataclass(slots=True)
class Taken:
    """One reply that stands in the new directory. gaps: seqs it misses; gap_word: why."""

    uid: int
    session_id: str
    stream_id: str
    stream_no: int
    last_seq: int
    segments: list[int] = field(default_factory=list)
    from_partial: bool = False
    from_bad_batches: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    gap_word: str = "dropped"
    is_open: bool = False
    """The last gap tells the least that is missing: nothing that was said behind it is here."""


@dataclass(slots=True)
class SalvageAccount:
    """All that salvage has to say. missing: damage that cost something that is nowhere else."""

    directory: str
    to: str
    taken: list[Taken] = field(default_factory=list)
    sessions: list[TakenSession] = field(default_factory=list)
    copied_partials: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    released_partials: list[str] = field(default_factory=list)
    deleted: list[Key] = field(default_factory=list)
    """Sessions that are not taken, for their delete had begun."""
    tombstones_doubted: int = 0
    missing: list[fsck.Finding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Why there may have been more, or less, than what was taken."""

    @property
    def code(self) -> int:
        """The exit code."""
        is_whole = all(one.whole for one in self.sessions)
        has_gaps = any(one.gaps and one.gap_word != "dropped" for one in self.taken)
        if is_whole and not (self.missing or self.unread or self.doubts or has_gaps):
            return DONE
        took = self.taken or self.sessions or self.copied_partials or self.quarantined
        return CANNOT if took else NOTHING_TAKEN


def lines(account: SalvageAccount) -> Iterator[str]:
    """For a person."""
    counts = f"{len(account.taken) + len(account.copied_partials)} replies taken"
    counts += f", {len(account.sessions)} sessions" if account.sessions else ""
    yield f"{escaped_line(account.directory)} to {escaped_line(account.to)}: {counts}"
    for one in account.taken:
        yield _about(one)
    for session in account.sessions:
        yield from session_taken(session)
    for path in account.copied_partials:
        yield f"  taken: {escaped_line(path)}, of another log"
    for path in account.quarantined:
        yield f"  kept in quarantine: {escaped_line(path)}"
    for path in account.released_partials:
        yield f"  not taken, it was released: {escaped_line(path)}"
    for uid, session_id in account.deleted:
        yield f"  not taken, its delete had begun: session {escaped_line(session_id)}, uid {uid}"
    if account.tombstones_doubted:
        text = "in damaged batches are not believed: replies taken may have been released"
        yield f"  {account.tombstones_doubted} tombstones {text}"
    for finding in account.missing:
        for line in fsck.about(finding):
            yield line.replace("; walld salvage takes them", ", they are taken")
    for why in account.unread:
        yield f"  unreadable: {escaped_line(why)}"
    for doubt in account.doubts:
        yield f"  in doubt: {escaped_line(doubt)}"


def _about(one: Taken) -> str:
    session, stream = escaped_line(one.session_id), escaped_line(one.stream_id)
    sources = ["its partial"] * one.from_partial
    if one.segments:
        listed = [str(number) for number in one.segments]
        many = len(listed) > 3
        said = f"{listed[0]} to {listed[-1]}" if many else ", ".join(listed)
        sources.append(f"segments {said}" if len(listed) > 1 else f"segment {said}")
    where = " and ".join(sources)
    if one.from_bad_batches:
        where += f" ({one.from_bad_batches} records of damaged batches)"
    line = f"  taken: stream {stream} of session {session}, uid {one.uid}: "
    line += f"seqs 0 to {one.last_seq}, from {where}"
    if one.gaps:
        missing = ", ".join(f"{first_seq} to {last_seq}" for first_seq, last_seq in one.gaps[:10])
        more = f" and {len(one.gaps) - 10} more" if len(one.gaps) > 10 else ""
        line += f"; missing ({one.gap_word}): {missing}{more}" + " or more" * one.is_open
    return line
