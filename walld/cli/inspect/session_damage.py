"""Describes damage to sessions of a data directory, for `fsck` and `salvage`.

Owns: the lines. Refuses: looking (`session_scan.py`), printing.

Invariant: nothing of a stranger's is unescaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from walld.cli.inspect.session_salvage import TakenSession
from walld.cli.inspect.session_scan import SessionFound
from walld.escape import escaped_line

__all__ = ["about_session", "missing_told", "session_taken", "sessions_told"]


def sessions_told(sessions: list[SessionFound]) -> Iterator[str]:
    """How many, and each that is not as it should be."""
    if not sessions:
        return
    whole = sum(found.state == "clean" for found in sessions)
    events, pending = sum(one.events for one in sessions), sum(one.pending for one in sessions)
    counts = f"{events} events in their files, {pending} in the log alone"
    yield f"  sessions: {whole} whole, {len(sessions) - whole} not; {counts}"
    for found in sessions:
        if found.state != "clean":
            yield from about_session(found)


def about_session(found: SessionFound) -> Iterator[str]:
    """One session, and below it what is wrong with it."""
    whose = found.path if found.session_id is None else f"session {found.session_id}"
    seqs = f"{found.events} events, the last of seq {found.last_seq}"
    yield f"  {found.state}: {escaped_line(whose)}, uid {found.uid}: {seqs}"
    if found.trouble:
        yield f"    {escaped_line(found.trouble)}"
    if found.torn_bytes:
        yield f"    its file ends in {found.torn_bytes} bytes that are no line"
    if found.cut:
        yield f"    {found.cut} lines of the log stand behind a torn place: a start leaves them out"
    yield from missing_told(found.breaks, found.artifacts_damaged)


def session_taken(taken: TakenSession) -> Iterator[str]:
    """One that salvage has written, and below it what is missing of it."""
    line = f"  taken: session {escaped_line(taken.session_id)}, uid {taken.uid}: "
    line += f"{taken.events} events, the last of seq {taken.last_seq}"
    if taken.from_log:
        line += f", {taken.from_log} of them from the log"
    if taken.artifacts:
        line += f"; {taken.artifacts} artifacts"
    yield line
    yield from missing_told(taken.breaks, taken.artifacts_damaged)


def missing_told(
    breaks: Sequence[Mapping[str, Any]], artifacts: list[dict[str, str]]
) -> Iterator[str]:
    """What it cost, a line each."""
    for one in breaks:
        cost = f"events {one['first_seq']} to {one['last_seq']} are missing"
        if one["first_seq"] > one["last_seq"]:
            cost = f"before event {one['first_seq']}, none is missing"
        yield f"    {one['why']} at {one['offset']}: {cost}"
    for damaged in artifacts:
        yield f"    artifact {damaged['sha256']}: {escaped_line(damaged['why'])}"
