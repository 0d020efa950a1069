"""What an audit found as one page: a row a kind, and not a line a finding.

Owns: what belongs into one row, its example, what to do about it. Refuses: judging (the client's
`audit`), printing each finding (`audit.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from walld_client.session.audit import (
    BROKEN,
    INTERRUPTED,
    MALFORMED,
    MISSING,
    PENDING,
    UNANSWERED,
    UNREADABLE,
    Category,
    Finding,
)

from walld.cli.page import cut

__all__ = ["table"]

_WORST_FIRST: Final[tuple[Category, ...]] = ("unsafe_to_repair", "repairable", "unknown", "ok")
_PLAN: Final = "walld repair-plan SESSION --present FILE says what your store should add"
_TO_DO: Final[dict[tuple[str, Category], str]] = {
    (PENDING, "unknown"): "say what your store has: --present FILE; or walld is it: --own-store",
    (PENDING, "repairable"): _PLAN,
    (PENDING, "unsafe_to_repair"): "ask the user again; walld session show SESSION has the rest",
    (PENDING, "ok"): "nothing: a process is at work on it",
    (INTERRUPTED, "repairable"): _PLAN,
    (INTERRUPTED, "ok"): "nothing, or answer it again: submit(..., retry_of=TURN)",
    (UNANSWERED, "unsafe_to_repair"): "look what it did; walld session settle SESSION CALL --ran",
    (MALFORMED, "unsafe_to_repair"): "walld session events SESSION has its line; no view has it",
    (MISSING, "unsafe_to_repair"): "put the same bytes again: session.artifact(data)",
    (BROKEN, "unsafe_to_repair"): "stop walld; walld session repair SESSION --data DIR",
    (UNREADABLE, "unsafe_to_repair"): "read the daemon's log; walld fsck DIR",
}


def table(findings: Sequence[Finding], about: Callable[[Finding], str], width: int) -> list[str]:
    """Three lines for each kind of a category, the worst first, at most `width` columns each.

    about: one finding in a line of its own, escaped.
    """
    groups: dict[tuple[Category, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.category, one.kind), []).append(one)
    if not groups:
        return []
    lines = [_row("CATEGORY", "KIND", "COUNT")]
    for (category, kind), listed in sorted(groups.items(), key=_rank):
        lines.append(_row(category, kind, str(len(listed))))
        lines.append(cut(f"  e.g. {about(listed[0])}", width))
        lines.append(cut(f"  do: {_TO_DO.get((kind, category), 'look at it')}", width))
    return lines


def _rank(group: tuple[tuple[Category, str], list[Finding]]) -> tuple[int, int, str]:
    (category, kind), listed = group
    return _WORST_FIRST.index(category), -len(listed), kind


def _row(category: str, kind: str, count: str) -> str:
    return f"{category:<16}  {kind:<29}  {count:>7}"
