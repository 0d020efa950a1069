"""What `walld audit` says of a finding, for a person."""

from __future__ import annotations

from walld_client.session.audit import BROKEN, UNANSWERED, Finding

from walld.cli.query.audit import _about


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
