"""resume() of a session that moves on while it is judged. Both colours, one script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import walld_client
from colours import Coloured, connect
from fake_ledger import FakeLedger

AT_WORK = {"code": "at_work", "verdict": "blocked", "message": "process 7 is at work"}


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    yield client
    client.let_go()


@pytest.fixture
def states(client: Coloured, ledger: FakeLedger) -> list[int]:
    """Two turns of one message; each time that it is asked for, the session has grown."""
    session = client.session("S")
    session.submit("hello", message_id="m")
    (first,) = ledger.sessions["S"]
    second = first | {"seq": 2, "id": "t2", "turn": "t2", "at": "2026-01-01T00:00:00.000Z"}
    ledger.sessions["S"].append(second)
    turns = [
        {"turn_id": first["turn"], "state": "interrupted", "stream_ids": [], "submitted_seq": 1},
        {"turn_id": "t2", "state": "submitted", "stream_ids": [], "submitted_seq": 2},
    ]
    seqs = [2]

    def state(_: Any) -> dict[str, Any]:
        seqs.append(seqs[-1] + 1)
        return {"last_seq": seqs[-1], "turns": [dict(one) for one in turns]}

    ledger.views["state"] = state
    return seqs


def gate(owner: str | None, reasons: list[dict[str, Any]]) -> dict[str, Any]:
    worker = None if owner is None else {"turn": owner, "pid": 7}
    told = {"boundary": "before_intent", "calls": [], "own_turns": [], "as_of": "e1"}
    return told | {"owner": worker, "reasons": reasons}


def test_a_busy_owner_is_at_work(client: Coloured, ledger: FakeLedger, states: list[int]) -> None:
    """It was judged anew each time, without a pause, and then Unavailable."""
    ledger.views["resume"] = gate("t2", [AT_WORK])
    with pytest.raises(walld_client.Blocked) as blocked:
        client.session("S").resume(timeout=2.0)
    assert blocked.value.reasons == [AT_WORK]
    assert len(states) == 2, "judged once"


def test_who_was_late_is_told_so_by_a_busy_winner(
    client: Coloured, ledger: FakeLedger, states: list[int]
) -> None:
    ledger.views["resume"] = gate("t2", [AT_WORK])
    state = ledger.views["state"]

    def retried(asked: Any) -> Any:
        found = state(asked)
        found["turns"][1]["retry_of"] = found["turns"][0]["turn_id"]
        return found

    ledger.views["state"] = retried
    with pytest.raises(walld_client.Refused) as refused:
        client.session("S").resume(timeout=2.0)
    assert refused.value.code == "already_resumed"
    assert refused.value.got.startswith("turn t2, submitted, process 7")


@pytest.mark.parametrize("owner", [None, "t3"])
def test_a_session_that_moves_on_is_judged_anew_with_a_pause(
    client: Coloured, ledger: FakeLedger, states: list[int], owner: str | None
) -> None:
    """Also where who is at work has a turn that was not there yet: it may be the claim that won."""
    ledger.views["resume"] = gate(owner, [] if owner is None else [AT_WORK])
    with pytest.raises(walld_client.WalldError) as error:
        client.session("S").resume(timeout=1.0)
    if not isinstance(error.value, walld_client.Unavailable):  # the last answer may be late
        assert isinstance(error.value, walld_client.Refused)
        assert error.value.code == "stale"
        assert int(error.value.limit) + 1 == int(error.value.got)
    assert len(states) <= 2 * 21 + 1, "two a try, at most twenty pauses a second"
