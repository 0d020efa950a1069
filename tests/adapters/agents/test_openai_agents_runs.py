"""OpenAI Agents: runs beside each other and in each other, all with the same two call ids.

In this process, because contexts are what it is about.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import pytest
import walld_client
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import wants
from walld_client import PartialReply

wants("openai-agents")
agents, httpx2, openai = map(importlib.import_module, ("agents", "httpx2", "openai"))
hooks_of = importlib.import_module("walld_client.adapters.openai_agents").WalldHooks
agents.set_tracing_disabled(True)

user: ContextVar[str] = ContextVar("user")
each_wire = pytest.mark.parametrize("wire", ["chat", "responses"])
each_way = pytest.mark.parametrize("what", ["run", "tee"])


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def agent_of(replay: Replay, loop: asyncio.Runner) -> Iterator[Callable[..., Any]]:
    """An agent of that wire, model and tools."""
    http = httpx2.AsyncClient()
    about = {"base_url": replay.url + "/v1", "api_key": "x", "max_retries": 0}
    sdk = openai.AsyncOpenAI(http_client=http, **about)

    def make(wire: str, model: str, *tools: Any) -> Any:
        made = agents.OpenAIChatCompletionsModel
        made = made if wire == "chat" else agents.OpenAIResponsesModel
        return agents.Agent(name="a", model=made(model, sdk), tools=list(tools))

    yield make
    loop.run(http.aclose())


def meeting(size: int) -> Any:
    """A tool that answers only once as many of its calls run as are to run at once."""
    left = size
    all_here = asyncio.Event()

    async def weather(city: str) -> str:
        """The weather of a city, of one user."""
        nonlocal left
        left -= 1
        if left == 0:
            all_here.set()
        await all_here.wait()
        return f"{user.get()} in {city}"

    return agents.function_tool(weather)


def guarded() -> Any:
    """A tool that asks before it runs."""

    def weather(city: str) -> str:
        """The weather of a city, of one user."""
        return f"{user.get('nobody')} in {city}"

    return agents.function_tool(weather, needs_approval=True)


def approved(state: Any) -> Any:
    for one in state.get_interruptions():
        state.approve(one)
    return state


async def go(agent: Any, hooks: Any, what: str, said: Any = "hello") -> Any:
    if what == "run":
        return await agents.Runner.run(agent, said, hooks=hooks)
    result = agents.Runner.run_streamed(agent, said, hooks=hooks)
    async for _ in hooks.tee(result):
        pass
    return result


def results(replies: list[PartialReply]) -> list[Any]:
    """Of all calls, in their order."""
    return [one.result for reply in replies for one in reply.segments if one.kind == "tool"]


def started(replies: list[PartialReply]) -> list[str]:
    """The calls whose tools are known to have begun."""
    found = [one for reply in replies for one in reply.segments if one.name == "tool_started"]
    return sorted(one.result["call_id"] for one in found)


@each_way
@each_wire
def test_runs_beside_each_other(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
    what: str,
) -> None:
    """Same call ids at the same time, one object of hooks: each has its own results."""
    users = [f"{wire} {what} {number}" for number in range(6)]

    async def main() -> None:
        agent = agent_of(wire, "tool", meeting(2 * len(users)))
        hooks = hooks_of(walld, user.get)

        async def one(name: str) -> None:
            user.set(name)
            await go(agent, hooks, what)

        await asyncio.gather(*[asyncio.create_task(one(name)) for name in users])

    loop.run(main())
    for name in users:
        replies = walld.recover_all(name)
        assert results(replies) == [f"{name} in Oslo", f"{name} in Rome"]
        assert started(replies) == ["call_a", "call_b"]
        assert [reply.status for reply in replies] == ["complete", "complete"]


def piece(name: str | None, arguments: str, **about: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"tool_calls": [{"index": 0, "function": function, **about}]}


ODD_CALLS = {
    "a late id": [piece("weather", '{"ci'), piece(None, 'ty":"Os', id="x"), piece(None, 'lo"}')],
    "a late name": [piece(None, '{"city":', id="x"), piece("weather", '"Oslo"}')],
    "both late": [piece(None, '{"city":'), piece("weather", '"Oslo"}', id="x")],
    "another name": [piece("we", "", id="x"), piece("weather", '{"city":"Oslo"}')],
}


@pytest.mark.parametrize("shape", ODD_CALLS)
def test_a_call_of_an_odd_server(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    replay: Replay,
    shape: str,
) -> None:
    """What comes before its id and name are known Agents tells only with the whole call."""
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [{"index": 0, "delta": one, "finish_reason": None} for one in ODD_CALLS[shape]]
    deltas.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    frames: list[Any] = [{**about, "choices": [one]} for one in deltas]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    frames.append({**about, "choices": [], "usage": usage})
    replay.bodies[shape] = [f"data: {json.dumps(one)}\n\n".encode() for one in frames]

    async def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    async def main() -> None:
        agent = agent_of("chat", shape, agents.function_tool(weather))
        agent = agent.clone(tool_use_behavior="stop_on_first_tool")
        await go(agent, hooks_of(walld, shape), "tee")

    loop.run(main())
    (reply,) = walld.recover_all(shape)
    (call,) = [one for one in reply.segments if one.kind == "tool"]
    assert (call.name, call.arguments) == ("weather", '{"city":"Oslo"}')
    assert (call.result, reply.status) == ("4 degrees in Oslo", "complete")


@each_wire
def test_two_calls_of_one_id(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
) -> None:
    """They stay two; Agents runs neither, and ends the run before hooks are told of the answer."""
    session = f"one id {wire}"

    async def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    async def main() -> None:
        agent = agent_of(wire, "twins", agents.function_tool(weather))
        await go(agent, hooks_of(walld, session), "tee")

    with pytest.raises(agents.ModelBehaviorError, match="reused"):
        loop.run(main())
    (reply,) = walld.recover_all(session)
    tools = [one for one in reply.segments if one.kind == "tool"]
    assert [(one.call_id, one.info, one.arguments) for one in tools] == [
        ("call_a", None, '{"city": "Oslo"}'),
        ("call_a#2", {"given_id": "call_a"}, '{"city": "Rome"}'),
    ]
    assert (reply.status, started([reply])) == ("complete", [])


def test_a_call_that_is_given_twice(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, replay: Replay
) -> None:
    """Agents runs it once: hook and event tell the one result, which is no other call's."""
    frames = [frame.body for frame in answer("chat", "twins")]
    replay.bodies["again"] = b"".join(frames).replace(b"Rome", b"Oslo")

    async def main() -> None:
        about = {"tool_use_behavior": "stop_on_first_tool"}
        agent = agent_of("chat", "again", agents.function_tool(weather)).clone(**about)
        await go(agent, hooks_of(walld, "given twice"), "tee")

    async def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    loop.run(main())
    (reply,) = walld.recover_all("given twice")
    assert results([reply]) == ["4 degrees in Oslo", None]


def test_a_run_in_a_tool_of_a_run(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner
) -> None:
    """Three runs, the outer one waiting for the same ids: each has its own results."""
    ids: list[str] = []

    async def main() -> None:
        hooks = hooks_of(walld, "a run in a tool", on_reply=ids.append)
        inner = agent_of("chat", "tool", meeting(4))

        @agents.function_tool
        async def weather(city: str) -> str:
            """The weather of a city, of another agent."""
            user.set(city)
            done = await agents.Runner.run(inner, city, hooks=hooks)
            return f"{city}: {done.final_output}"

        await go(agent_of("chat", "tool", weather), hooks, "run")

    loop.run(main())
    replies = [one for one in (walld.recover(stream_id=one) for one in ids) if one is not None]
    said = told(answer("chat", "after-tool"))["text"]
    assert sorted(results([one]) for one in replies if results([one])) == [
        ["Oslo in Oslo", "Oslo in Rome"],
        [f"Oslo: {said}", f"Rome: {said}"],
        ["Rome in Oslo", "Rome in Rome"],
    ]


@each_way
def test_a_run_that_was_approved(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, what: str
) -> None:
    """It goes on with another context; its results are in the reply that asked for them."""

    async def main() -> None:
        hooks = hooks_of(walld, f"approved, {what}")
        agent = agent_of("chat", "tool", guarded())
        first = await go(agent, hooks, what)
        await go(agent, hooks, what, approved(first.to_state()))

    loop.run(main())
    replies = walld.recover_all(f"approved, {what}")
    assert results(replies) == ["nobody in Oslo", "nobody in Rome"]
    assert [reply.status for reply in replies] == ["complete", "complete"]


@each_way
def test_a_run_of_which_the_program_holds_the_state_alone(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, what: str
) -> None:
    """A state has a context of its own: that of the run is gone. What nobody holds is over."""
    name = f"state, {what}"

    async def main() -> None:
        hooks = hooks_of(walld, name)
        agent = agent_of("chat", "tool", guarded())
        state = (await go(agent, hooks, what)).to_state()
        dropped = (await go(agent, hooks, what)).to_state()
        gc.collect()
        assert [one.status for one in walld.recover_all(name)] == ["live", "live"]
        del dropped
        gc.collect()
        assert [one.status for one in walld.recover_all(name)] == ["live", "complete"]
        await go(agent, hooks, what, approved(state))

    loop.run(main())
    replies = walld.recover_all(name)
    assert results(replies) == ["nobody in Oslo", "nobody in Rome", None, None]
    assert [reply.status for reply in replies] == ["complete"] * 3


@each_way
@each_wire
def test_a_run_that_goes_on_from_json_beside_another(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
    what: str,
) -> None:
    """Its calls equal those that another user's run waits with: that one gets its own alone."""
    gone, waits = f"{wire} {what} gone", f"{wire} {what} waits"

    async def main() -> None:
        hooks = hooks_of(walld, user.get)
        agent = agent_of(wire, "tool", guarded())
        user.set(gone)
        text = (await go(agent, hooks, what)).to_state().to_string()
        gc.collect()
        user.set(waits)
        second = await go(agent, hooks, what)
        user.set(gone)
        await go(agent, hooks, what, approved(await agents.RunState.from_string(agent, text)))
        assert results(walld.recover_all(gone)) == [None, None]
        assert results(walld.recover_all(waits)) == [None, None]
        user.set(waits)
        await go(agent, hooks, what, approved(second.to_state()))

    loop.run(main())
    gc.collect()
    assert results(walld.recover_all(gone)) == [None, None]
    assert results(walld.recover_all(waits)) == [f"{waits} in Oslo", f"{waits} in Rome"]


@each_way
def test_a_run_that_nobody_approves(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, what: str
) -> None:
    """Its calls wait as long as the program may still approve them."""

    async def main() -> None:
        hooks = hooks_of(walld, f"not approved, {what}")
        first = await go(agent_of("chat", "tool", guarded()), hooks, what)
        assert len(first.interruptions) == 2
        assert [one.status for one in walld.recover_all(f"not approved, {what}")] == ["live"]
        del first
        await asyncio.sleep(0)
        gc.collect()

    loop.run(main())
    gc.collect()
    (reply,) = walld.recover_all(f"not approved, {what}")
    assert (reply.status, reply.error) == ("complete", None)
    assert [one.outcome for one in reply.segments if one.kind == "tool"] == ["unknown"] * 2


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
@each_wire
def test_a_run_that_the_program_cancels(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
    mode: str,
) -> None:
    """At once: cancelled, as the program wants, and not cut. Behind the turn: whole."""
    session, said = f"{wire} {mode}", list[str]()

    async def main() -> None:
        hooks = hooks_of(walld, session)
        model = "text:hold6" if mode == "immediate" else "text"
        result = agents.Runner.run_streamed(agent_of(wire, model), "hello", hooks=hooks)
        async for event in hooks.tee(result):
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                said.append(event.data.delta)
                result.cancel(mode=mode)

    loop.run(main())
    (reply,) = walld.recover_all(session)
    if mode == "immediate":
        assert (reply.status, reply.error, reply.text) == ("cancelled", None, "".join(said))
    else:
        assert (reply.status, reply.text) == ("complete", told(answer(wire, "text"))["text"])


@each_wire
def test_the_session_is_that_of_the_beginning(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, wire: str
) -> None:
    """It is asked for in the context of the run and when a model is asked, whoever reads."""
    alice, bob = f"{wire} alice", f"{wire} bob"
    asked: list[str] = []

    def session() -> str:
        asked.append(user.get())
        return asked[-1]

    async def main() -> None:
        hooks = hooks_of(walld, session)
        user.set(alice)
        agent = agent_of(wire, "tool", meeting(2))
        events = hooks.tee(agents.Runner.run_streamed(agent, "hello", hooks=hooks))
        user.set(bob)
        async for _ in events:
            pass

    loop.run(main())
    assert asked == [alice, alice]
    replies = walld.recover_all(alice)
    assert results(replies) == [f"{alice} in Oslo", f"{alice} in Rome"]
    assert replies[1].text == told(answer("chat", "after-tool"))["text"]


@each_way
def test_a_session_that_cannot_be_told(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    caplog: pytest.LogCaptureFixture,
    what: str,
) -> None:
    def session() -> str:
        raise LookupError("no user")

    async def main() -> None:
        await go(agent_of("chat", "text"), hooks_of(walld, session), what)

    with caplog.at_level(logging.ERROR, "walld"):
        loop.run(main())
    assert [one.message.split(":")[0] for one in caplog.records if one.name == "walld"] == [
        "a model call is not recorded"
    ]


@each_way
def test_a_tool_that_raises(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, what: str
) -> None:
    """Hooks are told neither of it nor of a run that ends so: nobody says that the call is done."""

    async def weather(city: str) -> str:  # a thread would hold the run for a moment more
        """The weather of a city."""
        raise ValueError(city)

    session = f"raises {what}"
    tool = agents.function_tool(weather, failure_error_function=None)
    with pytest.raises(agents.UserError):
        loop.run(go(agent_of("chat", "tool", tool), hooks_of(walld, session), what))
    gc.collect()  # the run's context, which its exception held
    (reply,) = walld.recover_all(session)
    calls = [one for one in reply.segments if one.kind == "tool"]
    assert [(one.result, one.outcome) for one in calls] == [(None, "unknown")] * 2
    assert (started([reply]), reply.status) == (["call_a", "call_b"], "complete")


@pytest.mark.parametrize("is_teed", [False, True])
def test_a_stream_that_is_closed_early_is_closed(
    walld: walld_client.Client, agent_of: Callable[..., Any], loop: asyncio.Runner, is_teed: bool
) -> None:
    """Agents waits there until its run is through, and what it saves is saved."""

    async def main() -> None:
        hooks = hooks_of(walld, f"closed early {is_teed}")
        agent = agent_of("responses", "text:ms30")
        result = agents.Runner.run_streamed(agent, "hello", hooks=hooks)
        async with aclosing(hooks.tee(result) if is_teed else result.stream_events()) as events:
            async for event in events:
                if event.type == "raw_response_event":
                    break
        assert result.run_loop_task.done()

    loop.run(main())


@each_way
@each_wire
def test_a_handoff_is_the_result_of_its_call(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
    what: str,
) -> None:
    """No hook names its call: the events do, or else what the next model is asked."""
    session = f"handoff {wire} {what}"
    other = agent_of(wire, "text").clone(name="b")
    hand_off = agents.handoff(other, tool_name_override="weather")
    agent = agent_of(wire, "tool").clone(handoffs=[hand_off])
    loop.run(go(agent, hooks_of(walld, session), what))
    first, second = walld.recover_all(session)
    calls = [one for one in first.segments if one.kind == "tool"]
    assert [one.outcome for one in calls] == ["done", "done"]
    assert calls[0].result == '{"assistant": "b"}'
    assert "ignoring" in calls[1].result
    assert (first.status, second.status) == ("complete", "complete")
    assert second.text == told(answer("chat", "after-tool"))["text"]


@each_way
@each_wire
def test_a_call_that_is_rejected_has_what_the_model_is_told(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
    what: str,
) -> None:
    session = f"rejected {wire} {what}"

    async def main() -> None:
        agent, hooks = agent_of(wire, "tool", guarded()), hooks_of(walld, session)
        state = (await go(agent, hooks, what)).to_state()
        first, second = state.get_interruptions()
        state.approve(first)
        state.reject(second)
        await go(agent, hooks, what, state)

    loop.run(main())
    first, second = walld.recover_all(session)
    calls = [one for one in first.segments if one.kind == "tool"]
    assert [one.outcome for one in calls] == ["done", "done"]
    assert (calls[0].result, started([first])) == ("nobody in Oslo", ["call_a"])
    assert "not approved" in calls[1].result
    assert (first.status, second.status) == ("complete", "complete")


@each_way
@each_wire
def test_the_end_of_a_run_that_asks_no_model_behind_a_call(
    walld: walld_client.Client,
    agent_of: Callable[..., Any],
    loop: asyncio.Runner,
    wire: str,
    what: str,
) -> None:
    """No hook tells the result of a call that a guardrail rejects: with the run its reply ends all
    the same, also where the program holds what the run gave."""
    session = f"ended {wire} {what}"

    @agents.tool_input_guardrail  # type: ignore[untyped-decorator]
    def never(data: Any) -> Any:
        return agents.ToolGuardrailFunctionOutput.reject_content("not this")

    def weather(city: str) -> str:
        """The weather of a city."""
        return city

    tool = agents.function_tool(weather, tool_input_guardrails=[never])
    agent = agent_of(wire, "tool", tool).clone(tool_use_behavior="stop_on_first_tool")
    given = loop.run(go(agent, hooks_of(walld, session), what))
    assert given.final_output == "not this"
    (reply,) = walld.recover_all(session)
    calls = [one for one in reply.segments if one.kind == "tool"]
    outcomes = [("not this", "done")] * 2 if what == "tee" else [(None, "unknown")] * 2
    assert [(one.result, one.outcome) for one in calls] == outcomes
    assert (reply.status, started([reply])) == ("complete", [])
