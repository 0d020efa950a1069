"""Several streams teed into one reply: made beforehand and read in turn, or at the same time."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import walld_client
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import wants
from walld_client.adapters import tee
from walld_client.adapters.frameworks import teeing

wants("httpx2", "openai")
openai = importlib.import_module("openai")

WHOLE = told(answer("chat", "text"))["text"]


@pytest.fixture
def asked(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stream of a text."""
    monkeypatch.setattr(teeing, "_warned_of", [], raising=False)
    with openai.OpenAI(base_url=replay.url + "/v1", api_key="x", max_retries=0) as sdk:
        yield lambda: sdk.chat.completions.create(model="text", messages=[], stream=True)


def test_one_is_read_on_though_another_has_begun(
    walld: walld_client.Client, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The later one is the reply's: no text of the other is in it, nor in its way."""
    with walld.reply("s") as reply:
        first, second = tee(asked(), reply), tee(asked(), reply)
        for stream in (first, first, second, first, second):
            next(stream)
        assert len(list(first)) > 3
        for _ in second:
            pass
        list(first)
        found = walld.recover(stream_id=reply.stream_id)
        assert found is not None
        assert (found.text, found.attempts) == (WHOLE, 2)
        (said,) = [one for one in caplog.messages if "need a reply each" in one]
        assert reply.stream_id in said
        assert reply.end() > 0


def test_two_that_are_made_beforehand_and_read_in_turn_are_two_steps(
    walld: walld_client.Client, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with walld.reply("s") as reply:
        for stream in [tee(asked(), reply), tee(asked(), reply)]:
            list(stream)
        found = walld.recover(stream_id=reply.stream_id)
        assert found is not None
        assert [(one.text, one.step) for one in found.segments if one.kind == "text"] == [
            (WHOLE, 0),
            (WHOLE, 1),
        ]
        assert not caplog.messages
        assert reply.end() > 0


def test_a_tee_of_a_tee_says_it_once(walld: walld_client.Client, asked: Any) -> None:
    with walld.reply("s") as reply:
        list(tee(tee(asked(), reply), reply))
        found = walld.recover(stream_id=reply.stream_id)
        assert found is not None
        assert found.text == WHOLE
        assert reply.end() > 0
