"""Pending lines of which damage has taken some: the rest goes to the file in runs."""

from __future__ import annotations

from walld.ledger.pending import Pending, runs_of


def test_missing_lines_part_what_is_appended() -> None:
    lines = [Pending(seq, b"%d" % seq) for seq in (4, 6, 7, 9)]
    assert runs_of(lines) == [(4, [b"4"]), (6, [b"6", b"7"]), (9, [b"9"])]
    assert runs_of(lines[1:3]) == [(6, [b"6", b"7"])]
