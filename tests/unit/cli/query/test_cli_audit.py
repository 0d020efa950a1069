"""What `walld audit` says of a finding, for a person."""

from __future__ import annotations

from typing import Any

import msgspec
from walld_client.session.audit import (
    BROKEN,
    INTERRUPTED,
    MALFORMED,
    MISSING,
    PENDING,
    UNANSWERED,
    UNREADABLE,
    Finding,
    Report,
    report_of,
)

from walld.cli.query.audit import _about, _is_kept, _lines


def found(kind: str, subject: str) -> Finding:
    return Finding(kind=kind, category="unsafe_to_repair", session_id="s", subject=subject)


def test_a_break_is_said_in_words() -> None:
    broken = '{"offset":90,"first_seq":3,"last_seq":4,"why":"damaged","seam":""}'
    said = _about(found(BROKEN, broken))
    assert said.endswith("session s, offset 90, first_seq 3, last_seq 4, why damaged")


def test_an_id_is_said_as_it_is_whatever_it_looks_like() -> None:
    for ident in ('{"a":1}', "{"):
        said = _about(found(UNANSWERED, ident))
        assert said.endswith(f"session s, {ident}")


def test_all_that_an_audit_can_find_is_three_lines_a_kind_and_the_worst_comes_first() -> None:
    kinds = [
        (PENDING, "ok"),
        (PENDING, "unknown"),
        (PENDING, "repairable"),
        (PENDING, "unsafe_to_repair"),
        (INTERRUPTED, "ok"),
        (INTERRUPTED, "repairable"),
        *((kind, "unsafe_to_repair") for kind in (UNANSWERED, MALFORMED, MISSING, BROKEN)),
        (UNREADABLE, "unsafe_to_repair"),
    ]
    findings = [
        Finding(kind=kind, category=category, session_id="\x1b" * 90, subject="x", detail="d" * 90)
        for kind, category in kinds
        for _ in range(1000)
    ]
    facts = {"overall": "warn", "collisions": {"t": 2}, "sessions": 1, "turns": 1}
    report = msgspec.convert(facts | {"findings": findings}, Report)
    lines = _lines(report, is_whole=False)
    assert len(lines) == 2 + 3 * len(kinds) + 2
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert not any("look at it" in line for line in lines), "each kind says what to do"
    rows = [line for line in lines[2:-2] if not line.startswith(" ")]
    ranks = ["unsafe_to_repair", "repairable", "unknown", "ok"]
    assert [ranks.index(row.split()[0]) for row in rows] == [0] * 6 + [1] * 2 + [2] + [3] * 2
    assert len(_lines(report, is_whole=True)) == 1 + len(findings) + 1


def test_what_damage_took_of_an_only_store_is_not_saved() -> None:
    facts: dict[str, Any] = {"turns": [{"turn_id": "t", "message_id": "m", "state": "interrupted"}]}
    assert report_of({"s": facts}, _is_kept).overall == "ok"
    facts["turns"][0]["submission_lost"] = True
    (finding,) = report_of({"s": facts}, _is_kept).findings
    assert (finding.kind, finding.category) == (PENDING, "unsafe_to_repair")
