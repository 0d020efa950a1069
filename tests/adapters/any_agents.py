"""A model by chance for agents: it calls the tools that it is offered, and some answers are cut.

Owns: its answers, in the process, and what replies must have of them. Refuses: agents
(`test_openai_agents_any.py`, `test_pydantic_ai_any.py`), what a frame is (`answers.py`).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any, NamedTuple

from walld_client import PartialReply

from adapters.answers import frames_of, joined, told
from adapters.replay import whole_of
from adapters.trial import kept, wants

__all__ = ["AnyModel", "alike", "check"]

wants("httpx2")
httpx2 = importlib.import_module("httpx2")

_WORDS = ("a", "hello ", "\U0001f600", "\n", "data: x", "[DONE]", "", '{"a":', "\u2028", "\\", '"')
_REQUESTS_WITH_CALLS = 5
_CHANCES = (
    r"datetime\.datetime\([^)]*\)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|0x[0-9a-f]+"
    r"|'created_at': [\d.]+|created_at=[\d.]+"
)


class Answer(NamedTuple):
    """told: in the form of `answers.told`."""

    told: dict[str, Any]
    is_cut: bool
    is_stream: bool


class AnyModel:
    """What it says depends on the seed, how often it was asked, and the tools it was offered."""

    def __init__(self, wire: str, seed: str) -> None:
        self.answers: list[Answer] = []
        self.asked: list[Any] = []
        self._wire = wire
        self._random = Random(seed)
        self._calls = 0

    def __call__(self, request: Any) -> Any:
        """A handler of httpx2's mock transport."""
        asked = json.loads(request.content)
        self.asked.append(asked)
        random, is_stream = self._random, bool(asked.get("stream"))
        calls = dict(self._some_calls(_tools_of(asked)))
        texts = [_text(random) for _ in range(random.randint(0, 3))]
        if not calls and not "".join(texts).strip():
            texts = ["the end"]
        thoughts = ["".join(_text(random)) for _ in range(random.randint(0, 2))]
        number = str(len(self.asked))
        frames = frames_of(self._wire, number, texts, thoughts if is_stream else [], calls)
        is_cut = random.random() < 0.06
        self.answers.append(Answer(joined(told(frames)), is_cut, is_stream))
        if not is_stream:
            said = {"error": {"message": "x"}} if is_cut else whole_of(self._wire, frames)
            return httpx2.Response(500 if is_cut else 200, json=said)
        bodies = [one.body for one in frames]
        bodies = bodies[: random.randint(1, len(bodies) - 3)] if is_cut else bodies
        sent = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=sent, stream=_Body(bodies))

    def _some_calls(self, tools: list[str]) -> Iterator[tuple[str, tuple[str, list[str]]]]:
        if not tools or len(self.asked) > _REQUESTS_WITH_CALLS or self._random.random() < 0.25:
            return
        for _ in range(self._random.randint(1, 4)):
            self._calls += 1
            name = self._random.choice(tools)
            given = "{}" if "transfer" in name else json.dumps({"q": _text(self._random)})
            size = self._random.randint(1, 9)
            pieces = [given[at : at + size] for at in range(0, len(given), size)]
            yield f"call_{self._calls}", (name, pieces)


class _Body(httpx2.AsyncByteStream):  # type: ignore[misc,name-defined]
    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for frame in self.frames:
            yield frame
            await asyncio.sleep(0)


def _text(random: Random) -> str:
    return "".join(random.choice(_WORDS) for _ in range(random.randint(0, 3)))


def _tools_of(asked: dict[str, Any]) -> list[str]:
    return [(one.get("function") or one)["name"] for one in asked.get("tools") or ()]


def alike(seen: Any) -> str:
    """What a program saw, without times and ids that are new each time."""
    return re.sub(_CHANCES, "#", repr(seen))


def check(replies: list[PartialReply], model: AnyModel, results: dict[str, Any]) -> None:
    """Each answer is a reply, with what it said, and with the result of each call in `results`;
    of one that is no text only that there is one.

    Of a request that is not streamed and fails there is no reply.
    """
    recorded = [one for one in model.answers if one.is_stream or not one.is_cut]
    assert len(replies) == len(recorded)
    for reply, answer in zip(replies, recorded, strict=True):
        if answer.is_cut:
            assert reply.status == "errored"
            continue
        assert _read(kept(reply)) == _read(answer.told)
        assert (reply.status, reply.error) == ("complete", None)
        for one in reply.segments:
            if one.kind == "tool" and one.call_id in results:
                assert one.outcome != "unknown", one
                if isinstance(results[one.call_id], str):
                    assert one.result == results[one.call_id]


def _read(said: dict[str, Any]) -> dict[str, Any]:
    calls = {key: (name, json.loads(text)) for key, (name, text) in said["calls"].items()}
    return {**said, "calls": calls}
