"""Lines of a session that only the log has: which of them count, after a crash.

Owns: the lines of several streams brought into one row, and what becomes of a hole in it. Pure.
Refuses: reading them, a hole in the file itself (`scan.py`).

A power cut may take any part of what was not synced: line 3 may stand in the log where line 2 is
gone. Nobody was told that either is safe, so the row ends before the hole, as a file's does at its
torn end; later lines would say that something lies between, and nothing does. What is cut is not
thrown away: the caller keeps its bytes.

Invariants
- H1 What was acknowledged as synced is never cut: a hole that is, or may be, damage stays one.
- H2 Two starts in a row see the same lines. What one of them has cut a later one does not bring
  back: what was appended since says behind which line it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FoundLines", "Joined", "Pending", "is_dense", "join"]


class Pending(NamedTuple):
    """A line that is not in its session's file, as far as is known."""

    seq: int
    line: bytes


class FoundLines(NamedTuple):
    """One stream: the seq before its first line, the first batch of it, its lines in order."""

    base: int
    batch_no: int
    lines: list[Pending]


class Joined(NamedTuple):
    """kept: the session's, in order; with a hole only where something is damaged. cut: not its."""

    kept: list[Pending]
    cut: list[Pending]


def join(
    streams: Sequence[FoundLines],
    last_in_file: int,
    synced_no: int,
    *,
    met_damage: bool,
    proven: int = 0,
) -> Joined:
    """The streams in order of their numbers. last_in_file: the last line of the session's file.

    synced_no: up to this batch all was synced. met_damage: of the log, now or at an earlier start.
    proven: up to there its file once went, damaged since: what the first is behind was in it.
    """
    if streams:
        last_in_file = max(last_in_file, min(proven, streams[0].base))
    kept: list[Pending] = []
    for stream in streams:
        # It was begun behind `base`: what others hold beyond that an earlier start has cut (H2).
        kept = [one for one in kept if one.seq <= stream.base]
        kept += stream.lines
    if not kept or (is_dense(kept) and kept[0].seq <= last_in_file + 1):
        return Joined(kept, [])
    # A line of the file is there because it and all before it were synced in the log: those of the
    # log are the same, or were cut.
    kept = [one for one in kept if one.seq > last_in_file]
    whole = 0
    while whole < len(kept) and kept[whole].seq == last_in_file + 1 + whole:
        whole += 1
    # Lines that the file had and has no more: the log let go of them, so they had been synced.
    is_file_short = not whole and streams[0].base > last_in_file
    if met_damage or (is_file_short and streams[0].batch_no <= synced_no):
        return Joined(kept, [])
    return Joined(kept[:whole], kept[whole:])


def is_dense(lines: Sequence[Pending]) -> bool:
    """No line is missing between the first and the last."""
    return all(one.seq == seq for seq, one in enumerate(lines, lines[0].seq if lines else 0))
