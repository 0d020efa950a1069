"""Bodies of the three wires in any split: the same events, and nothing raises."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from adapters.answers import SCENARIOS, WIRES, answer, joined, told
from hypothesis import given
from hypothesis import strategies as st
from walld_client.adapters.frameworks.recording import Recording
from walld_client.adapters.wires.body import Body
from walld_client.adapters.wires.sse import SseParser
from walld_client.adapters.wires.wire import Fold

from walld.cli import demo

DEMO = Path(demo.__file__).parent / "reply.sse"


class Said:
    """A sink that remembers the calls a fold makes."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> int:
            self.calls.append((name, args, named))
            return len(self.calls)

        return call

    def state(self) -> dict[str, Any]:
        """In the form of `answers.told`."""
        state: dict[str, Any] = {"text": "", "reasoning": "", "calls": {}}
        for name, args, named in self.calls:
            if name == "tool":
                state["calls"][named["call_id"]] = [args[0], ""]
            elif name == "tool_arguments":
                state["calls"][named["call_id"]][1] += args[0]
            elif name in ("token", "reasoning"):
                state["text" if name == "token" else name] += args[0]
        return joined(state)


def folded(chunks: list[bytes]) -> tuple[Said, Fold | None, int]:
    """What a body says, as it is cut here."""
    body, said = Body(), Said()
    for chunk in chunks:
        for item in body.feed(chunk):
            assert body.fold is not None
            body.fold.take(item, said)
    return said, body.fold, body.unread


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    ends = [*sorted({at % (len(whole) + 1) for at in places}), len(whole)]
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("scenario", SCENARIOS)
@given(
    places=st.lists(st.integers(0, 10_000), max_size=40),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_split_gives_the_same_events(
    wire: str, scenario: str, places: list[int], ends: bytes
) -> None:
    frames = answer(wire, scenario)
    whole = b"".join(frame.body for frame in frames)
    once, fold, unread = folded([whole])
    assert (fold is not None, unread) == (True, 0)
    assert fold is not None
    assert fold.is_ended
    assert once.state() == joined(told(frames))
    again, _, _ = folded(cut(whole.replace(b"\n", ends), places))
    assert again.calls == once.calls


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_byte_by_byte_and_cut_off_anywhere(wire: str, scenario: str) -> None:
    """Behind each byte the answer is that of the frames that are whole."""
    frames = answer(wire, scenario)
    whole = b"".join(frame.body for frame in frames)
    body, said = Body(), Said()
    for at in range(len(whole)):
        for item in body.feed(whole[at : at + 1]):
            assert body.fold is not None
            body.fold.take(item, said)
    assert said.calls == folded([whole])[0].calls
    for count in range(len(frames)):
        some = b"".join(frame.body for frame in frames[:count])
        cut_off, fold, _ = folded([some, frames[count].body[:-1]])
        assert cut_off.state() == joined(told(frames[:count]))
        assert fold is None or not fold.is_ended


def test_a_recorded_answer_byte_by_byte() -> None:
    whole = DEMO.read_bytes().rstrip(b"\n") + b"\n\n"
    once, fold, unread = folded([whole])
    assert fold is not None
    assert fold.is_ended
    assert unread == 0
    assert len(once.state()["text"]) > 500
    again, _, _ = folded([whole[at : at + 1] for at in range(len(whole))])
    assert again.calls == once.calls


def test_recorded_answers_of_the_provider() -> None:
    folder = Path(os.environ.get("WALLD_RECORDED", "")) / "sse"
    recorded = sorted(folder.glob("anthropic-*.sse"))
    if not recorded:
        pytest.skip("WALLD_RECORDED names no directory with sse/: only the demo's was read")
    for path in recorded:
        once, fold, unread = folded([path.read_bytes().rstrip(b"\n") + b"\n\n"])
        assert fold is not None
        assert (fold.is_ended, unread) == (True, 0), path.name
        state = once.state()
        assert state["text"] or state["calls"]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_events_or_nothing(chunks: list[bytes]) -> None:
    folded(chunks)


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path] if path else []
    for key, one in inner:
        if isinstance(one, (dict, list)):
            found += places_of(one, (*path, key))
        else:
            found.append((*path, key))
    return found


@pytest.mark.parametrize("wire", WIRES)
@given(st.data())
def test_a_strange_event_is_passed_over(wire: str, data: st.DataObject) -> None:
    """Whatever stands anywhere in an event: nothing raises, and what follows is still there."""
    frames = answer(wire, "tool")
    spoken = [at for at, frame in enumerate(frames) if frame.said]
    at = data.draw(st.integers(spoken[0] + 1, spoken[-1]))
    name, _, payload = frames[at].body.rpartition(b"data: ")
    value = json.loads(payload)
    *path, last = data.draw(st.sampled_from(places_of(value)))
    inner = value
    for key in path:
        inner = inner[key]
    inner[last] = data.draw(
        st.none() | st.integers() | st.booleans() | st.text() | st.just([]) | st.just({"a": []})
    )
    body = name + b"data: " + json.dumps(value).encode() + b"\n\n"
    said = Said()
    recording = Recording(said)  # type: ignore[arg-type]
    for chunk in [
        *(one.body for one in frames[:at]),
        body,
        *(one.body for one in frames[at + 1 :]),
    ]:
        recording.chunk(chunk)
    before = folded([b"".join(one.body for one in frames[:at])])[0].calls
    assert said.calls[: len(before)] == before
    kinds = [one[0] for one in said.calls]
    assert "finish" in kinds or kinds[-1] in ("error", "_fail_at_end")


@given(st.lists(st.binary(max_size=30), max_size=12), st.lists(st.integers(0, 400), max_size=12))
def test_the_parser_alone(lines: list[bytes], places: list[int]) -> None:
    """Any lines: whole and in pieces give the same."""
    whole = b"\n".join([*lines, b"data: x", b"", b""])
    once = SseParser().feed(whole)
    parser = SseParser()
    pieces = [event for chunk in cut(whole, places) for event in parser.feed(chunk)]
    assert pieces == once
