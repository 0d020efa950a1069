"""When the clock is the next to change what the gate says."""

from __future__ import annotations

from session_log import Log

from walld.sessions.gate.approvals import next_expiry


def test_the_next_of_all_grants_that_expires() -> None:
    log = Log()
    log.submit("t")
    log.tool("t", "c", "approval:asked")
    assert next_expiry(log.events, 0) is None
    for expires_at in (30, 20.5, "soon", True, 10):
        given = {"call_id": "c", "state": "granted", "expires_at": expires_at}
        log.stand("tool_approval", given, turn="t")
    settled = {"of": {"turn": "t", "call_id": "c"}, "word": "granted", "expires_at": 25}
    log.stand("tool_settled", settled, turn="t", leaf=False)
    asked = (0, 9_999, 10_000, 20_500, 25_000, 30_000)
    found = [next_expiry(log.events, now_ms) for now_ms in asked]
    assert found == [10_000, 10_000, 20_500, 25_000, 30_000, None]
