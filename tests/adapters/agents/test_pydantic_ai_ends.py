"""Pydantic AI: a streamed answer that the program has read, before it leaves the block.

In this process, because when the reply ends is what it is about.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES, answer, told
from adapters.replay import Replay
from adapters.trial import wants
from daemon_process import DaemonProcess
from walld_client import PartialReply

wants("pydantic-ai-slim")
pydantic_ai = importlib.import_module("pydantic_ai")
capability = importlib.import_module("walld_client.adapters.pydantic_ai").WalldCapability
program = importlib.import_module("adapters.programs.pydantic_agents")

each_wire = pytest.mark.parametrize("wire", WIRES)
Agents = Callable[..., Any]


class Recorded:
    """The replies of an agent, in the order of their beginning."""

    def __init__(self, walld: walld_client.Client) -> None:
        self.walld = walld
        self.ids: list[str] = []
        self.capability = capability(walld, "s", on_reply=self.ids.append)

    def __getitem__(self, at: int) -> PartialReply:
        found = self.walld.recover(stream_id=self.ids[at])
        assert found is not None
        return found


@pytest.fixture
def recorded(kept_by: DaemonProcess) -> Iterator[Recorded]:
    client = walld_client.connect(kept_by.socket_path)
    yield Recorded(client)
    client.close()


@pytest.fixture
def agent_of(replay: Replay, recorded: Recorded) -> Any:
    """An agent for a block, behind which its HTTP client is closed."""

    @asynccontextmanager
    async def made(wire: str, model: str, **about: Any) -> AsyncIterator[Any]:
        one = program.model_of({"provider": wire, "base": replay.url, "model": model})
        try:
            yield pydantic_ai.Agent(one, capabilities=[recorded.capability], **about)
        finally:
            await one.client.close()

    return made


async def read(stream: Any) -> str:
    return "".join([text async for text in stream.stream_text(delta=True, debounce_by=None)])


STRUCTURED = [
    {
        "tool_calls": [
            {"index": 0, "id": "c", "function": {"name": "final_result", "arguments": ""}}
        ]
    },
    *(
        {"tool_calls": [{"index": 0, "function": {"arguments": one}}]}
        for one in ('{"response"', ":7}")
    ),
]


def frames_of(deltas: list[Any]) -> list[bytes]:
    """A Chat answer that asks for tools."""
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    frames = [json.dumps({**about, "choices": [one]}) for one in choices]
    return [f"data: {one}\n\n".encode() for one in [*frames, "[DONE]"]]


def call_of(index: int, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": name, "function": function}]}


@pytest.mark.parametrize("way", ["stream_output", "get_output", "stream_response"])
def test_a_structured_output_is_released_in_the_block(
    recorded: Recorded, agent_of: Agents, replay: Replay, way: str
) -> None:
    """By the output tool, as it is by default: nothing tells what that gave back."""
    replay.bodies["structured"] = frames_of(STRUCTURED)

    async def main() -> None:
        async with (
            agent_of("chat", "structured", output_type=int) as agent,
            agent.run_stream("hello") as stream,
        ):
            if way == "get_output":
                assert await stream.get_output() == 7
            else:
                async for _ in getattr(stream, way)(debounce_by=None):
                    assert recorded[0].status == "live"
            reply = recorded[0]
            assert (reply.status, reply.finish_reason) == ("complete", "tool_call")
            (call,) = [one for one in reply.segments if one.kind == "tool"]
            assert call.arguments == '{"response":7}'
            assert recorded.walld.release(recorded.ids[0])

    asyncio.run(main())


@each_wire
def test_released_in_the_block(recorded: Recorded, agent_of: Agents, wire: str) -> None:
    """Whole once all of it is read, so that the program may save and release there."""

    async def main() -> None:
        async with agent_of(wire, "text") as agent, agent.run_stream("hello") as stream:
            text = await read(stream)
            reply = recorded[0]
            assert reply.text == text == told(answer(wire, "text"))["text"]
            assert (reply.status, reply.partial, reply.error) == ("complete", False, None)
            assert reply.finish_reason
            assert recorded.walld.release(recorded.ids[0])

    asyncio.run(main())
    assert len(recorded.ids) == 1


@each_wire
def test_cut_and_read_to_its_end(recorded: Recorded, agent_of: Agents, wire: str) -> None:
    frames = answer(wire, "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)

    async def main() -> None:
        async with (
            agent_of(wire, f"text:eof{last}") as agent,
            agent.run_stream("hello") as stream,
        ):
            await read(stream)
            reply = recorded[0]
            assert (reply.status, reply.error.kind) == ("errored", "no_terminal_event")

    asyncio.run(main())
    assert recorded[0].status == "errored"


def test_a_finish_reason_that_is_an_error(
    recorded: Recorded, agent_of: Agents, replay: Replay
) -> None:
    """Some gateways of Chat have it where the model broke; it is no end."""
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [
        {"index": 0, "delta": {"content": "half"}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "error"},
    ]
    frames = [json.dumps({**about, "choices": [one]}) for one in choices]
    replay.bodies["broken"] = [f"data: {one}\n\n".encode() for one in [*frames, "[DONE]"]]

    async def main() -> None:
        async with agent_of("chat", "broken") as agent, agent.run_stream("hello") as stream:
            assert await read(stream) == "half"

    asyncio.run(main())
    reply = recorded[0]
    assert (reply.status, reply.text, reply.finish_reason) == ("errored", "half", None)
    assert reply.error is not None
    assert reply.error.kind == "finish_reason_error"


@each_wire
def test_left_early_in_the_block(recorded: Recorded, agent_of: Agents, wire: str) -> None:
    """It is live until the program leaves the block, and then it was left."""

    async def main() -> None:
        async with (
            agent_of(wire, "text:frames:ms5") as agent,
            agent.run_stream("hello") as stream,
        ):
            async for _ in stream.stream_text(delta=True, debounce_by=None):
                break
            assert recorded[0].status == "live"

    asyncio.run(main())
    assert (recorded[0].status, recorded[0].error) == ("cancelled", None)


@each_wire
def test_an_error_of_the_program_behind_a_whole_answer(
    recorded: Recorded, agent_of: Agents, wire: str
) -> None:
    async def main() -> None:
        async with agent_of(wire, "text") as agent, agent.run_stream("hello") as stream:
            await read(stream)
            raise RuntimeError("could not be saved")

    with pytest.raises(RuntimeError, match="could not be saved"):
        asyncio.run(main())
    assert (recorded[0].status, recorded[0].error) == ("complete", None)


@each_wire
def test_an_answer_that_asks_for_tools_goes_on(
    recorded: Recorded, agent_of: Agents, wire: str
) -> None:
    """Its finish is told when it is read; it ends with its tools."""

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    async def main() -> None:
        async with agent_of(wire, "tool", tools=[weather]) as agent, agent.iter("hello") as run:
            async for node in run:
                if not agent.is_model_request_node(node):
                    continue
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
                    reply = recorded[-1]
                    asks = any(one.kind == "tool" for one in reply.segments)
                    assert reply.finish_reason
                    assert reply.status == ("live" if asks else "complete")
                    if asks:
                        with pytest.raises(ValueError, match="ends with its run"):
                            recorded.walld.release(recorded.ids[0])

    asyncio.run(main())
    assert [recorded[at].status for at in range(2)] == ["complete", "complete"]
    results = [one.result for one in recorded[0].segments if one.kind == "tool"]
    assert results == ["4 degrees in Oslo", "4 degrees in Rome"]


ODD_CALLS = {
    "a late id": [
        {"index": 0, "function": {"name": "weather", "arguments": '{"ci'}},
        {"index": 0, "function": {"arguments": 'ty":"Oslo"}'}, "id": "c9"},
    ],
    "a name in pieces": [
        {"index": 0, "function": {"name": "weat", "arguments": ""}, "id": "c9"},
        {"index": 0, "function": {"name": "her", "arguments": '{"city":"Oslo"}'}},
    ],
}


@pytest.mark.parametrize("shape", ODD_CALLS)
def test_a_call_of_an_odd_server(
    recorded: Recorded, agent_of: Agents, replay: Replay, shape: str
) -> None:
    """What comes late of a call is of it, and so is its result."""
    calls = ODD_CALLS[shape]
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": None} for one in calls]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    frames = [json.dumps({**about, "choices": [one]}) for one in choices]
    replay.bodies[shape] = [f"data: {one}\n\n".encode() for one in [*frames, "[DONE]"]]

    def weather(city: str) -> str:
        """The weather of a city."""
        raise RuntimeError(f"no weather in {city}")

    async def main() -> None:
        about: Any = {"tools": [weather]}
        async with agent_of("chat", shape, **about) as agent, agent.run_stream("hello"):
            pass

    with pytest.raises(RuntimeError, match="no weather in Oslo"):
        asyncio.run(main())
    (call,) = [one for one in recorded[0].segments if one.kind == "tool"]
    assert (call.name, call.arguments) == ("weather", '{"city":"Oslo"}')
    assert call.result == "RuntimeError: no weather in Oslo"
    assert recorded[0].status == "complete"


@pytest.mark.parametrize("way", ["run", "stream"])
@each_wire
def test_two_calls_of_one_id(
    recorded: Recorded, agent_of: Agents, replay: Replay, wire: str, way: str
) -> None:
    """They stay two; Pydantic AI runs neither."""

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    async def main() -> None:
        about: Any = {"tools": [weather]}
        async with agent_of(wire, "twins", **about) as agent:
            if way == "run":
                await agent.run("hello")
            else:
                async with agent.run_stream("hello") as stream:
                    await stream.get_output()

    if way == "run":  # requests that are not streamed are whole objects
        recorded.capability = capability(
            recorded.walld, "s", on_reply=recorded.ids.append, stream_runs=True
        )
    with pytest.raises(pydantic_ai.UnexpectedModelBehavior, match="call_a"):
        asyncio.run(main())
    tools = [one for one in recorded[0].segments if one.kind == "tool"]
    assert [(one.call_id, one.info, json.loads(one.arguments or "")) for one in tools] == [
        ("call_a", None, {"city": "Oslo"}),
        ("call_a#2", {"given_id": "call_a"}, {"city": "Rome"}),
    ]
    assert [one.outcome for one in tools] == ["unknown", "unknown"]
    assert recorded[0].status == "complete"


@each_wire
def test_a_stream_without_a_block(recorded: Recorded, replay: Replay, wire: str) -> None:
    """`run_stream_sync` without `with`: over once it is read, and not when it is collected."""
    model = program.model_of({"provider": wire, "base": replay.url, "model": "text"})
    agent = pydantic_ai.Agent(model, capabilities=[recorded.capability])
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())  # the caller's, which it runs in
        stream = agent.run_stream_sync("hello")
        text = "".join(stream.stream_text(delta=True, debounce_by=None))
        assert (recorded[0].status, recorded[0].text) == ("complete", text)
        assert recorded[0].finish_reason
        with stream:
            pass
        runner.run(model.client.close())
    asyncio.set_event_loop(None)


def refuse() -> str:
    raise pydantic_ai.ModelRetry("not today")


def test_an_output_that_is_taken_back(recorded: Recorded, agent_of: Agents, replay: Replay) -> None:
    """A tool beside it asks for a retry: the call has what the model is told of it, and what an
    event told before. The output that is taken ends its reply."""
    both = [call_of(0, "final_result", '{"response":7}'), call_of(1, "refuse", "{}")]
    replay.bodies["retried"] = frames_of(both)
    told_first: list[Any] = []

    async def look(_ctx: Any, events: Any) -> None:
        async for event in events:
            if event.event_kind == "output_tool_result":
                told_first.append(results(recorded[-1])["final_result"])
                replay.bodies["retried"] = frames_of(both[:1])

    async def main() -> None:
        about: Any = {"output_type": int, "tools": [refuse]}
        async with agent_of("chat", "retried", **about) as agent:
            assert (await agent.run("hello", event_stream_handler=look)).output == 7

    asyncio.run(main())
    assert told_first == ["Final result processed."] * 2
    first, second = results(recorded[0]), results(recorded[1])
    assert "not used" in first["final_result"]
    assert "not today" in first["refuse"]
    assert second == {"final_result": "Final result processed."}
    assert recorded[1].status == "complete"


def test_a_tool_behind_the_output_that_raises(
    recorded: Recorded, agent_of: Agents, replay: Replay
) -> None:
    """`run_stream` still runs it, and tells nobody."""
    replay.bodies["behind"] = frames_of([{"content": "hello"}, call_of(0, "refuse", "{}")])

    async def main() -> None:
        about: Any = {"tools": [refuse], "end_strategy": "exhaustive"}
        async with (
            agent_of("chat", "behind", **about) as agent,
            agent.run_stream("hello") as stream,
        ):
            await stream.get_output()

    asyncio.run(main())
    (call,) = [one for one in recorded[0].segments if one.kind == "tool"]
    assert (call.outcome, recorded[0].status) == ("failed", "complete")
    assert "not today" in str(call.result)


def results(reply: PartialReply) -> dict[Any, Any]:
    """By the name of the tool."""
    return {one.name: one.result for one in reply.segments if one.kind == "tool"}
