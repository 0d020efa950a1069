"""What a person says of a call, said again: which entry it is, and how durable. One script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import walld_client
from colours import Coloured, connect
from fake_ledger import FakeLedger
from walld_client.wire import messages as wire


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    yield client
    client.let_go()


def gate(settled: str | None) -> dict[str, Any]:
    call = {"turn": "t1", "stream": None, "call_id": "c1", "may": "never", "why": "may_have_run"}
    return {"calls": [call | {"settled": settled}]}


def test_what_is_said_again_is_synced_as_the_first(client: Coloured, ledger: FakeLedger) -> None:
    """The first may have been written alone, by whoever appended it, and say more of the call."""
    session = client.session("S")
    ledger.views["resume"] = gate("ran")
    of = {"turn": "t1", "call_id": "c1", "tool": "deploy"}
    first = session.append("tool_settled", {"of": of, "word": "ran"}, leaf=False)
    again = session.settle("c1", "ran")
    assert (again.id, again.is_new) == (first.id, False)
    levels = [one.level for one in ledger.asked if isinstance(one, wire.Append)]
    assert levels == ["written", "synced"]
    assert session.settle("c1", "ran", result="up").is_new
    assert ledger.types("S") == ["tool_settled"] * 2


@pytest.mark.parametrize("word", ["did_not_run", "granted", "denied"])
def test_what_a_call_gave_is_of_one_that_ran(
    client: Coloured, ledger: FakeLedger, word: str
) -> None:
    """Kept beside another word it would go to the model in the place of that word."""
    told = f"^result is of word ran, got it with '{word}'$"
    with pytest.raises(ValueError, match=told):
        client.session("S").settle("c1", word, result="x")
    if word != "granted":
        for one in ({"expires_at": 10}, {"scope": {"tool": "deploy"}}):
            (name,) = one
            with pytest.raises(ValueError, match=f"^{name} is of word granted, got it with"):
                client.session("S").settle("c1", word, **one)
    assert ledger.asked == []


@pytest.mark.parametrize(
    ("which", "got", "limit", "text"),
    [
        ({"n": 99}, "n 99", "n 1; n 2", "no open call c1 is of that n"),
        ({"turn": "x"}, "turn x", "turn t1; turn None", "no open call c1 is of that turn"),
        ({"turn": "t1", "stream_id": "x"}, "stream x", "stream None; stream r", "of that stream"),
        ({"turn": "t1", "n": 2}, "turn t1, n 2", "turn t1, n 1; turn None, n 2", "turn and n"),
    ],
)
def test_what_of_a_call_does_not_fit_is_named(
    client: Coloured, ledger: FakeLedger, which: dict[str, Any], got: str, limit: str, text: str
) -> None:
    client.session("S").append("a")
    ledger.views["resume"] = gate(None)
    (call,) = ledger.views["resume"]["calls"]
    ledger.views["resume"]["calls"] = [
        call | {"n": 1},
        call | {"n": 2, "turn": None, "stream": "r"},
    ]
    with pytest.raises(walld_client.Refused, match=text) as refused:
        client.session("S").settle("c1", "ran", **which)
    assert (refused.value.code, refused.value.got) == ("unknown_call", got)
    assert refused.value.limit == limit


def test_a_settlement_is_not_judged_for_ever(client: Coloured, ledger: FakeLedger) -> None:
    """Whenever the session was asked for, somebody appends: a hundred times."""
    session = client.session("S")
    session.append("a")
    ledger.sessions["S"] *= 100
    ledger.views["resume"] = gate(None)
    seqs = [0]

    def state(_: Any) -> dict[str, Any]:
        seqs.append(seqs[-1] + 1)
        return {"last_seq": seqs[-1], "turns": []}

    ledger.views["state"] = state
    with pytest.raises(walld_client.Refused) as refused:
        session.settle("c1", "ran")
    assert (refused.value.code, refused.value.limit) == ("stale", "100")
