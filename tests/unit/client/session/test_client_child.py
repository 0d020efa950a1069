"""What a client writes to join a sub-agent's session to a call. One script, both colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import walld_client
from colours import Coloured, connect
from fake_daemon import Peer
from fake_ledger import FakeLedger
from walld_client.wire import messages as wire

OF = {"turn": "t1", "call_id": "k"}
CALL: dict[str, Any] = {"turn": "t1", "stream": None, "call_id": "k", "may": "run", "why": "x"}
LINK: dict[str, Any] = {"session": "P", "call_id": "k", "of": OF, "is_newest": True}
NOT_DONE = LINK | {"turn": "s1", "state": "submitted", "is_done": False, "result": None}
DONE = NOT_DONE | {"state": "completed", "is_done": True, "result": "4 degrees"}


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    ledger.views["resume"] = {"calls": [CALL | {"settled": None, "of": OF}]}
    ledger.views["child"] = lambda _: None
    client.session("P").append("begun")
    yield client
    client.let_go()


def payloads(ledger: FakeLedger, session: str, kind: str) -> list[Any]:
    return [one["payload"] for one in ledger.sessions.get(session, []) if one["type"] == kind]


def test_the_two_entries(client: Coloured, ledger: FakeLedger) -> None:
    child = client.session("P").child("C", call_id="k")
    assert child.session_id == "C"
    assert payloads(ledger, "P", "child") == [{"session": "C", "call_id": "k", "of": OF}]
    assert payloads(ledger, "C", "child_of") == [{"session": "P", "call_id": "k", "of": OF}]
    appends = [one for one in ledger.asked if isinstance(one, wire.Append)][1:]
    assert [one.session_id for one in appends] == ["P", "C"], "else it would be nobody's child"
    assert {one.level for one in appends} == {"synced"}
    assert not any(entry.leaf for one in appends for entry in one.entries)
    ledger.views["child"] = NOT_DONE
    client.session("P").child("C", call_id="k")
    assert ledger.types("P") == ["begun", "child"], "once"
    assert ledger.types("C") == ["child_of"]


def test_a_child_that_is_done_gives_its_result(client: Coloured, ledger: FakeLedger) -> None:
    client.session("C").append("begun")
    ledger.views["child"] = DONE
    for _ in range(2):
        client.session("P").child("C", call_id="k")
    told = [one for one in ledger.sessions["P"] if one["type"] == "tool_finished"]
    assert [one["payload"] for one in told] == [{"call_id": "k", "result": "4 degrees"}]
    assert (told[0]["id"], told[0]["turn"]) == ("C:s1:result", "t1")


def test_an_older_daemon_is_written_nothing(client: Coloured, ledger: FakeLedger) -> None:
    """It would keep the entries unread, and judge the call as if there were no child."""

    def unknown(peer: Peer, request: Any) -> bool:
        if isinstance(request, wire.Project) and request.name == "child":
            text = "there is no such view of a session"
            peer.say(wire.Error("unknown_projection", text, "child", "messages", request.id))
            return True
        return False

    ledger.before = unknown
    with pytest.raises(walld_client.Unsupported):
        client.session("P").child("C", call_id="k")
    assert (list(ledger.sessions), ledger.types("P")) == (["P"], ["begun"])


def test_that_its_parent_cannot_be_told_is_no_failure_of_the_child(
    client: Coloured, ledger: FakeLedger, caplog: pytest.LogCaptureFixture
) -> None:
    child = client.session("P").child("C", call_id="k")
    turn = child.submit("look", message_id="m")
    ledger.views["child"] = DONE

    def refuses(peer: Peer, request: Any) -> bool:
        if isinstance(request, wire.Append) and request.entries[0].type == "tool_finished":
            code = "illegal_tool" if is_told else "disk_full"
            peer.say(wire.Error(code, "no", "", "", request.id))
            return True
        return False

    ledger.before = refuses
    is_told = True
    assert turn.completed().id
    assert "has no result yet" not in caplog.text
    is_told = False
    client.session("P").child("C", call_id="k")
    assert "session 'C': its parent has no result yet" in caplog.text
