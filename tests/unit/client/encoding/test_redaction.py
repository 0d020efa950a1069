"""What `redact` sees of a value: every text that is sent for it."""

from __future__ import annotations

import collections
import dataclasses
import enum
import pathlib
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import walld_client
from fake_daemon import FakeDaemon
from fake_ledger import FakeLedger
from walld_client.encoding import value_encoding
from walld_client.encoding.redaction import redacted, redacted_json
from walld_client.wire import messages as wire


@dataclasses.dataclass
class Login:
    password: str
    more: list[Any]


class Row(msgspec.Struct):
    password: str


class Word(str, enum.Enum):  # noqa: UP042 - as older programs write it
    ONE = "secret"


class Odd:
    def __repr__(self) -> str:
        return "<odd secret>"


class Worse:
    def __repr__(self) -> str:
        raise RuntimeError("secret")


HIDING: dict[str, Any] = {
    "set": {"secret"},
    "frozen": frozenset(["a secret"]),
    "fields": Login("secret", [{"secret"}, Odd()]),
    "row": Row("secret"),
    "table": MappingProxyType({"a": ("secret",)}),
    "word": Word.ONE,
    "path": pathlib.Path("/secret"),
    "queue": collections.deque(["secret"]),
    "error": ValueError("secret"),
    "odd": Odd(),
    "worse": Worse(),
}


def hidden(text: str) -> str:
    return text.replace("secret", "***")


@pytest.mark.parametrize("name", HIDING)
def test_no_text_passes_it(name: str) -> None:
    shown = msgspec.json.encode(redacted(HIDING[name], hidden))
    assert b"secret" not in shown
    assert (b"***" in shown) == (name != "worse")


def test_what_holds_no_text_stays() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    value = {"n": 1, "f": 1.5, "b": True, "none": None, "raw": b"secret", "at": at}
    assert redacted(value, hidden) == value


def test_it_is_given_plain_texts(path: str, daemon: FakeDaemon) -> None:
    """A class of texts may search and replace in its own way, as markupsafe's does."""

    class Markup(str):
        def replace(self, old: str, new: str, *_: Any) -> Markup:  # type: ignore[override]
            return Markup(str.replace(self, old, f"&lt;{new}&gt;"))

    client = walld_client.connect(path, redact=hidden)
    reply = client.reply("S")
    reply.token(Markup("a secret"))
    reply.tool_result(Markup("secret"))
    reply.finish(Markup("secret"))
    reply.error(Markup("secret"), detail=Markup("secret"))
    peer = daemon.agent()
    daemon.until(lambda: peer.messages and isinstance(peer.messages[-1], wire.AppError))
    assert "lt;" not in repr(peer.messages)
    client.close(0.0)


def test_fields_are_what_they_are_without_it() -> None:
    login = Login("x", [b"raw", datetime(2026, 1, 1, tzinfo=UTC)])
    assert value_encoding.value_bytes(redacted(login, str)) == value_encoding.value_bytes(login)


def test_json_stays_as_it_is_written_around_its_texts() -> None:
    text = '{ "secret": 12345678901234567890123,\n"a": 1.50, "b": ["a \\"secret\\" \u00e9", "ok"]}'
    said = text.replace('a \\"secret', 'a \\"***')
    seen: list[str] = []

    def see(one: str) -> str:
        seen.append(one)
        return one.replace('"secret" \u00e9', '"***" \u00e9')

    assert redacted_json(text, see) == said
    assert seen == ['a "secret" \u00e9', "ok", said], "keys are seen in the whole alone"
    assert redacted_json('["\\ud83d a"]', lambda one: one.replace("a", "b")) == '["\\ud83d b"]'


def test_no_text_of_a_session_or_an_error_passes_it(
    path: str, daemon: FakeDaemon, ledger: FakeLedger
) -> None:
    client = walld_client.connect(path, redact=hidden)
    client.session("S").append("a", HIDING)
    client.session("S").submit({"login": HIDING["fields"]}, note={"secret"})
    assert "secret" not in repr(ledger.sessions["S"])
    client.reply("S").error("no", detail=HIDING)
    peer = daemon.agent()
    daemon.until(lambda: peer.messages and isinstance(peer.messages[-1], wire.AppError))
    assert b"secret" not in peer.messages[-1].detail
    assert b"***" in peer.messages[-1].detail
    client.close(0.0)
