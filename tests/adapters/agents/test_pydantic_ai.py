"""Pydantic AI, as it comes from the registry, against a real daemon."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import walld_client
from adapters.answers import SCENARIOS, WIRES, answer, joined, told
from adapters.examples import check
from adapters.replay import Replay
from adapters.trial import (
    Nursery,
    check_gate_behind_a_tool,
    check_kept_before_it_is_handed_on,
    check_killed_behind_each_frame,
    check_killed_in_a_tool,
    check_two_replies,
    kept,
    wants,
)
from daemon_process import DaemonProcess

wants("pydantic-ai-slim")
pydantic_ai, function_model, messages = map(
    importlib.import_module, ("pydantic_ai", "pydantic_ai.models.function", "pydantic_ai.messages")
)
capability = importlib.import_module("walld_client.adapters.pydantic_ai").WalldCapability

user: ContextVar[str] = ContextVar("user")
each_wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("pydantic_agents")


@pytest.mark.parametrize("scenario", SCENARIOS)
@each_wire
def test_killed_behind_each_frame(
    programs: Nursery, kept_by: DaemonProcess, wire: str, scenario: str
) -> None:
    """What is recovered is what the program had got, the first fragment too (trap 5)."""
    check_killed_behind_each_frame(programs, kept_by, wire, scenario, "iter")


@pytest.mark.parametrize("scenario", ["text", "think", "tool"])
@each_wire
def test_kept_before_it_is_handed_on(
    programs: Nursery, kept_by: DaemonProcess, wire: str, scenario: str
) -> None:
    check_kept_before_it_is_handed_on(programs, kept_by, scenario, provider=wire, what="iter")


@pytest.mark.parametrize("what", ["run", "run streamed", "iter"])
@each_wire
def test_an_agent(
    programs: Nursery, kept_by: DaemonProcess, replay: Replay, wire: str, what: str
) -> None:
    """A call, its tool, the second request: two replies, the results where they belong."""
    trial = programs.run(provider=wire, what=what, model="tool", loud=False).done()
    first, second = check_two_replies(trial, kept_by)
    said = kept(first)
    if what == "run":  # whole, and some providers' SDKs have parsed it
        for one in said["calls"].values():
            one[1] = json.dumps(json.loads(one[1]))
    assert said == joined(told(answer(wire, "tool")))
    assert first.finish_reason
    assert second.finish_reason
    asked = [bool(one.get("stream")) for one in replay.seen[-2:]]
    assert asked == [what != "run"] * 2, "a request stays what the program made it"


async def _hello(_messages: Any, _info: Any) -> Any:
    return messages.ModelResponse(parts=[messages.TextPart("hello")])


def test_a_model_that_cannot_be_streamed(walld: walld_client.Client) -> None:
    ids: list[str] = []
    agent = pydantic_ai.Agent(
        function_model.FunctionModel(_hello),
        capabilities=[capability(walld, "s", on_reply=ids.append)],
    )
    assert asyncio.run(agent.run("x")).output == "hello"
    (stream_id,) = ids
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    assert (reply.text, reply.status, reply.partial) == ("hello", "complete", False)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inert: not even where streams were asked for does a request change."""
    monkeypatch.setenv("WALLD_ENABLED", "0")
    ids: list[str] = []
    off = walld_client.connect()
    agent = pydantic_ai.Agent(
        function_model.FunctionModel(_hello),
        capabilities=[capability(off, "s", on_reply=ids.append, stream_runs=True)],
    )
    assert asyncio.run(agent.run("x")).output == "hello"
    assert len(ids) == 1, "the id is real all the same"


@each_wire
def test_the_session_is_that_of_the_beginning(
    walld: walld_client.Client, replay: Replay, wire: str
) -> None:
    """It is asked for once a request, when it is made, and not when the text comes."""
    alice, asked = f"{wire} alice", list[str]()
    module = importlib.import_module("adapters.programs.pydantic_agents")

    def session() -> str:
        asked.append(user.get())
        return asked[-1]

    async def main() -> None:
        user.set(alice)
        model = module.model_of({"provider": wire, "base": replay.url, "model": "text:frames"})
        agent = pydantic_ai.Agent(model, capabilities=[capability(walld, session)])
        async with agent.iter("hello") as run:
            async for node in run:
                if not agent.is_model_request_node(node):
                    continue
                async with node.stream(run.ctx) as stream:
                    user.set(f"{wire} bob")
                    async for _ in stream:
                        pass
        await model.client.close()

    asyncio.run(main())
    assert asked == [alice]
    assert [one.text for one in walld.recover_all(alice)] == [told(answer("chat", "text"))["text"]]


def test_results_of_every_kind(walld: walld_client.Client) -> None:
    """A tool that returns more than text, one that asks for another try, arguments that are none
    of its, and the call that ends the run."""
    answers = iter(
        [
            [("look", {"at": 1}), ("refuse", {}), ("look", {"at": "x"})],
            [("final_result", {"response": 7})],
        ]
    )

    def calls() -> list[Any]:
        return [
            messages.ToolCallPart(name, arguments, f"{name}{at}")
            for at, (name, arguments) in enumerate(next(answers))
        ]

    async def answered(_messages: Any, _info: Any) -> Any:
        return messages.ModelResponse(parts=calls(), finish_reason="tool_call")

    ids: list[str] = []
    agent = pydantic_ai.Agent(
        function_model.FunctionModel(answered),
        output_type=int,
        capabilities=[capability(walld, "s", on_reply=ids.append)],
    )

    @agent.tool_plain
    def look(at: int) -> Any:
        return pydantic_ai.ToolReturn({"seen": at}, content="for the model alone")

    @agent.tool_plain
    def refuse() -> str:
        raise pydantic_ai.ModelRetry("not today")

    assert asyncio.run(agent.run("x")).output == 7
    first, second = (walld.recover(stream_id=one) for one in ids)
    assert first is not None
    assert second is not None
    outcomes = {one.call_id: one for one in first.segments if one.kind == "tool"}
    assert {key: one.outcome for key, one in outcomes.items()} == {
        "look0": "done",
        "refuse1": "failed",
        "look2": "failed",
    }
    assert outcomes["look0"].result == {"seen": 1}
    assert "not today" in str(outcomes["refuse1"].result)
    started = [one.result["call_id"] for one in first.segments if one.name == "tool_started"]
    assert len(started) == len(set(started))
    assert {"look0", "refuse1"} <= set(started)
    (call,) = [one for one in second.segments if one.kind == "tool"]
    assert (call.call_id, call.outcome) == ("final_result0", "done")


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda found: found,
    "as JSON": lambda found: messages.ModelMessagesTypeAdapter.validate_json(
        messages.ModelMessagesTypeAdapter.dump_json(found)
    ),
}


def _guarded(walld: walld_client.Client, ids: list[str]) -> Any:
    """An agent whose tools ask somebody first, all its answers with the same two call ids."""

    async def answered(history: Any, _info: Any) -> Any:
        if len(history) > 2:
            return messages.ModelResponse([messages.TextPart("done")], finish_reason="stop")
        calls = [messages.ToolCallPart("look", {"at": at}, f"call_{at}") for at in (0, 1)]
        return messages.ModelResponse(calls, finish_reason="tool_call")

    agent = pydantic_ai.Agent(
        function_model.FunctionModel(answered),
        output_type=[str, pydantic_ai.DeferredToolRequests],
        capabilities=[capability(walld, "s", on_reply=ids.append)],
    )

    @agent.tool_plain(requires_approval=True)
    def look(at: int) -> str:
        return f"{user.get()} at {at}"

    return agent


@pytest.mark.parametrize("kept_as", KEEPERS)
def test_tools_that_were_approved(walld: walld_client.Client, kept_as: str) -> None:
    """Their results come in another run, and are in the reply that asked for them; of two runs
    that wait for the same call ids each has its own."""
    ids, names = list[str](), ("alice", "bob")
    agent = _guarded(walld, ids)

    async def main() -> None:
        waiting = [await agent.run("x") for _ in names]
        for name, run in zip(names, waiting, strict=True):
            user.set(name)
            said = {"call_0": True, "call_1": pydantic_ai.ToolDenied(f"not for {name}")}
            done = await agent.run(
                message_history=KEEPERS[kept_as](run.all_messages()),
                deferred_tool_results=pydantic_ai.DeferredToolResults(approvals=said),
            )
            assert done.output == "done"

    asyncio.run(main())
    for name, stream_id in zip(names, ids, strict=False):
        reply = walld.recover(stream_id=stream_id)
        assert reply is not None
        assert (reply.status, reply.partial) == ("complete", False)
        assert [(one.result, one.outcome) for one in reply.segments if one.kind == "tool"] == [
            (f"{name} at 0", "done"),
            (f"not for {name}", "failed"),
        ]
    assert len(ids) == 4


def test_tools_that_nobody_approves(walld: walld_client.Client) -> None:
    """Their calls wait as long as the program may still approve them."""
    ids: list[str] = []
    waiting = asyncio.run(_guarded(walld, ids).run("x"))
    (reply,) = [walld.recover(stream_id=one) for one in ids]
    assert reply is not None
    assert reply.status == "live"
    del waiting
    gc.collect()
    (reply,) = [walld.recover(stream_id=one) for one in ids]
    assert reply is not None
    assert (reply.status, reply.error) == ("complete", None)
    assert [one.outcome for one in reply.segments if one.kind == "tool"] == ["unknown"] * 2


@pytest.mark.parametrize("what", ["run", "events"])
def test_a_tool_that_raises(walld: walld_client.Client, replay: Replay, what: str) -> None:
    """Its exception ends the run, and is its result; what a tool beside it gave back is kept."""
    ids: list[str] = []
    module = importlib.import_module("adapters.programs.pydantic_agents")

    async def main() -> None:
        model = module.model_of({"provider": "chat", "base": replay.url, "model": "tool"})
        hook = capability(walld, "s", on_reply=ids.append)
        agent = pydantic_ai.Agent(model, capabilities=[hook])
        is_back = asyncio.Event()

        @agent.tool_plain
        async def weather(city: str) -> str:
            """The weather of a city."""
            if city == "Oslo":
                is_back.set()
                return "fine"
            await is_back.wait()
            await asyncio.sleep(0)
            raise RuntimeError("boom")

        try:
            if what == "run":
                await agent.run("x")
            else:
                async with agent.run_stream_events("x") as events:
                    async for _ in events:
                        pass
        finally:
            await model.client.close()

    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(main())
    (reply,) = [walld.recover(stream_id=one) for one in ids]
    assert reply is not None
    assert [(one.result, one.outcome) for one in reply.segments if one.kind == "tool"] == [
        ("fine", "done"),
        ("RuntimeError: boom", "failed"),
    ]


@each_wire
def test_left_early(programs: Nursery, kept_by: DaemonProcess, wire: str) -> None:
    """Cancelled, as with the other adapters, and not taken for one that was cut."""
    model = "text:frames:ms20"
    trial = programs.run(provider=wire, what="stream", model=model, leave=2).done()
    reply = kept_by.orphan(trial.ids[0])
    assert (reply.status, reply.error) == ("cancelled", None)
    assert kept(reply)["text"].startswith(trial.told["text"])


@each_wire
def test_a_text_that_is_streamed(programs: Nursery, kept_by: DaemonProcess, wire: str) -> None:
    trial = programs.run(provider=wire, what="stream", model="text").done()
    assert trial.raised is None, trial.lines
    (stream_id,) = trial.ids
    reply = kept_by.orphan(stream_id)
    assert kept(reply) == trial.told == joined(told(answer(wire, "text")))
    assert (reply.status, reply.partial) == ("complete", False)


@each_wire
def test_a_body_without_its_terminal_event(
    programs: Nursery, kept_by: DaemonProcess, wire: str
) -> None:
    """Trap 1: Pydantic AI calls it complete."""
    frames = answer(wire, "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(provider=wire, what="iter", model=f"text:eof{last}").done()
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"
    assert reply.error is not None
    assert reply.error.kind == "no_terminal_event"


@each_wire
def test_cut(programs: Nursery, kept_by: DaemonProcess, wire: str) -> None:
    frames = answer(wire, "text")
    last = max(at for at, frame in enumerate(frames, 1) if frame.said)
    trial = programs.run(provider=wire, what="iter", model=f"text:frames:cut{last}").done()
    assert trial.raised is not None
    reply = kept_by.orphan(trial.ids[0])
    assert kept(reply) == trial.told
    assert reply.status == "errored"


@pytest.mark.parametrize("what", ["run", "run streamed"])
@each_wire
def test_killed_in_a_tool(programs: Nursery, kept_by: DaemonProcess, wire: str, what: str) -> None:
    trial = programs.run(provider=wire, what=what, model="tool", stall=True)
    check_killed_in_a_tool(trial, kept_by)


@pytest.mark.parametrize("what", ["run", "run streamed"])
@each_wire
def test_the_gate_behind_a_tool(
    programs: Nursery, kept_by: DaemonProcess, wire: str, what: str
) -> None:
    check_gate_behind_a_tool(programs, kept_by, provider=wire, what=what, model="tool")


def test_the_example(kept_by: DaemonProcess, replay: Replay) -> None:
    check("pydantic_ai_agent", "chat", kept_by, replay, tool=True)
