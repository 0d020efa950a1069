"""Lines of a session that only the log has: which of them count after a crash.

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
- H3 What a session has leapt over is no torn place: a start could not read what may stand there,
  and whatever was said since stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LEAPT", "FoundLines", "Joined", "Pending", "is_dense", "join", "runs_of"]


LEAPT: Final = b"leapt"
"""The meta of a stream's Begin: seqs before its first line may have been given, nobody knows."""


class Pending(NamedTuple):
    """A line that is not in its session's file, as far as is known."""

    seq: int
    line: bytes


class FoundLines(NamedTuple):
    """One stream: the seq before its first line, the first batch of it, its lines in order.

    leapt: up to `base` seqs may have been given that its daemon could not read.
    """

    base: int
    batch_no: int
    lines: list[Pending]
    leapt: bool = False


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
    dropped: list[Pending] = []
    leaps = {stream.base + 1 for stream in streams if stream.leapt}
    for stream in streams:
        # It was begun behind `base`: what others hold beyond that an earlier start has cut (H2), or
        # did not see for damage: then it is kept aside.
        dropped += [one for one in kept if one.seq > stream.base and met_damage]
        kept = [one for one in kept if one.seq <= stream.base]
        kept += stream.lines
    if not kept or (is_dense(kept) and kept[0].seq <= last_in_file + 1):
        return Joined(kept, dropped)
    # A line of the file is there because it and all before it were synced in the log: those of the
    # log are the same, or were cut.
    kept = [one for one in kept if one.seq > last_in_file]
    whole: list[Pending] = []
    cut: list[Pending] = []
    last_seq, is_torn = last_in_file, False
    for one in kept:
        is_torn = one.seq not in leaps and (is_torn or one.seq != last_seq + 1)
        (cut if is_torn else whole).append(one)
        last_seq = one.seq
    # Lines that the file had and has no more: the log let go of them, so they had been synced.
    is_file_short = not whole and streams[0].base > last_in_file
    if met_damage or (is_file_short and streams[0].batch_no <= synced_no):
        return Joined(kept, dropped)
    return Joined(whole, cut)


def is_dense(lines: Sequence[Pending]) -> bool:
    """No line is missing between the first and the last."""
    return all(one.seq == seq for seq, one in enumerate(lines, lines[0].seq if lines else 0))


def runs_of(lines: Sequence[Pending]) -> list[tuple[int, list[bytes]]]:
    """Lines of which none is missing, each run with its first seq: damage to the log parts them."""
    runs: list[tuple[int, list[bytes]]] = []
    for seq, line in lines:
        if not runs or seq != runs[-1][0] + len(runs[-1][1]):
            runs.append((seq, []))
        runs[-1][1].append(line)
    return runs
