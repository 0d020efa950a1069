"""The same message id and content is the first turn, whatever form its content has in the log.

What a session of a former client holds is appended here as that client did: an artifact takes the
place of the longest field, whichever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess
from walld_client.errors import Refused

SHORT, MIDDLE, LONG = 10, 100_000, 250_000
CONTENTS: dict[str, Any] = {
    "text": "x" * 200_000,
    "blocks": [{"type": "text", "text": "x" * 200_000, "n": 1.5, "a": None}],
    "object": {"b": "x" * 100_000, "a": "y" * 100_000},
}
"""Of a length that fits an entry, but not beside a long `meta`."""


Sessions = Callable[[str], walld_client.Session]


@pytest.fixture
def sessions(daemon: DaemonProcess) -> Iterator[Sessions]:
    client = walld_client.connect(daemon.socket_path, redact=lambda text: text.replace("z", "zz"))
    yield client.session
    client.close()


@pytest.fixture
def session(sessions: Sessions) -> walld_client.Session:
    return sessions("s")


def formerly(session: walld_client.Session, content: Any, meta: int, **more: Any) -> str:
    """Submitted by a former client."""
    payload = {"message_id": "m", "content": content, "meta": {"a": "y" * meta}, **more}
    return session.append("turn_submitted", payload, id="t", turn="t", key="m", once=True).id


def is_beside(session: walld_client.Session) -> bool:
    content = session.events()[0]["payload"]["content"]
    return isinstance(content, dict) and "_artifact" in content


@pytest.mark.parametrize("name", CONTENTS)
def test_other_meta_is_the_same_message(sessions: Sessions, name: str) -> None:
    for lengths in (SHORT, MIDDLE), (MIDDLE, SHORT), (0, LONG), (LONG, 0):
        session = sessions(f"{lengths}")
        one, two = [
            session.submit(CONTENTS[name], message_id="m", a="y" * length) for length in lengths
        ]
        assert one.turn_id == two.turn_id, lengths
        assert not is_beside(session), "its own length says so"
        (message,) = session.messages() or []
        assert message["content"] == CONTENTS[name]
        with pytest.raises(Refused, match="message_id_taken"):
            session.submit("other", message_id="m", a="y" * MIDDLE)


@pytest.mark.parametrize("name", CONTENTS)
def test_what_a_former_client_submitted_is_found(sessions: Sessions, name: str) -> None:
    for meta, now in product((SHORT, MIDDLE), repeat=2):
        session = sessions(f"{meta} {now}")
        first = formerly(session, CONTENTS[name], meta)
        assert is_beside(session) == (meta == MIDDLE)
        again = session.submit(CONTENTS[name], message_id="m", a="y" * now)
        assert again.turn_id == first
        again.interrupted("stop")
        retry = session.submit(CONTENTS[name], retry_of=first, a="y" * now)
        assert session.submit(CONTENTS[name], retry_of=retry.turn_id).message_id == "m"
        assert [one["content"] for one in session.messages() or []] == [CONTENTS[name]]


def test_what_was_inline_and_would_be_beside_now_is_found(session: walld_client.Session) -> None:
    content = "x" * 255_000
    first = formerly(session, content, 0)
    assert not is_beside(session)
    again = session.submit(content, message_id="m")
    assert again.turn_id == first
    again.completed()
    session.submit(content, retry_of=first)
    assert [event["payload"].get("content") == content for event in session.events()] == [
        True,
        False,
        True,
    ]


def test_an_object_in_another_order_is_the_same(session: walld_client.Session) -> None:
    first = session.submit({"a": "x" * 300_000, "b": 1}, message_id="m")
    again = session.submit({"b": 1, "a": "x" * 300_000}, message_id="m")
    assert again.turn_id == first.turn_id


def test_another_content_is_refused_in_every_form(session: walld_client.Session) -> None:
    formerly(session, "[1]" + " " * 200_000, MIDDLE, attachments=[{"url": "zone"}])
    before = session.events()
    for content, attached in (
        ("[2]" + " " * 200_000, {"url": "zone"}),
        ([1], {"url": "zone"}),
        ("[1]" + " " * 200_000, {"url": "other"}),
    ):
        with pytest.raises(Refused, match="message_id_taken"):
            session.submit(content, message_id="m", attachments=[attached])
        with pytest.raises(Refused, match="message_id_taken"):
            session.submit(content, retry_of="t", attachments=[attached])
    assert session.events() == before
    same = session.submit("[1]" + " " * 200_000, message_id="m", attachments=[{"url": "zone"}])
    same.interrupted("stop")
    session.submit("[1]" + " " * 200_000, retry_of="t")
    told = [event["payload"].get("attachments") for event in session.events()]
    assert told[0] == told[-1] == [{"url": "zzone"}], "redacted once"


def test_attachments_that_are_left_out_are_those_of_the_first(
    session: walld_client.Session,
) -> None:
    for number, content in enumerate(("see", "x" * 300_000)):
        first = session.submit(content, message_id=f"m{number}", attachments=[b"a file"])
        assert session.submit(content, message_id=f"m{number}").turn_id == first.turn_id
        for other in ([b"another"], [b"a file", b"another"]):
            with pytest.raises(Refused, match="message_id_taken"):
                session.submit(content, message_id=f"m{number}", attachments=other)
        with pytest.raises(Refused, match="message_id_taken"):
            session.submit("other", message_id=f"m{number}")
    bare = session.submit("bare", message_id="b")
    assert session.submit("bare", message_id="b").turn_id == bare.turn_id
    with pytest.raises(Refused, match="message_id_taken"):
        session.submit("bare", message_id="b", attachments=[b"a file"])
    assert [len(one.get("attachments", ())) for one in session.messages() or []] == [1, 1, 0]
