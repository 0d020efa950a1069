"""LangChain: tools that speak to LangGraph, by an interrupt or a Command."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import walld_client
from adapters.replay import Replay
from adapters.trial import wants

wants("langchain", "langchain-openai", "langgraph")
agents, middleware, messages, tools, openai, memory, types = map(
    importlib.import_module,
    (
        "langchain.agents",
        "langchain.agents.middleware",
        "langchain_core.messages",
        "langchain_core.tools",
        "langchain_openai",
        "langgraph.checkpoint.memory",
        "langgraph.types",
    ),
)
callback = importlib.import_module("walld_client.adapters.langchain").WalldCallback

QUESTION: Any = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def agent(replay: Replay) -> Callable[..., Any]:
    about = {"base_url": replay.url + "/v1", "api_key": "x", "max_retries": 0}

    def make(tool: Any, **more: Any) -> Any:
        model = openai.ChatOpenAI(model="tool", streaming=True, **about)
        return agents.create_agent(model, [tool], **more)

    return make


def calls(walld: walld_client.Client, stream_id: str) -> list[tuple[str | None, Any]]:
    reply = walld.recover(stream_id=stream_id)
    assert reply is not None
    return [(one.outcome, one.result) for one in reply.segments if one.kind == "tool"]


def test_a_tool_that_waits_for_a_human(
    walld: walld_client.Client, agent: Callable[..., Any]
) -> None:
    """It has not failed: nobody knows yet what becomes of the call."""

    @tools.tool
    def weather(city: str) -> Any:
        """The weather of a city."""
        return types.interrupt({"may I?": city})

    ids: list[str] = []
    config = {
        "callbacks": [callback(walld, "graphs", on_reply=ids.append)],
        "configurable": {"thread_id": "1"},
    }
    agent(weather, checkpointer=memory.InMemorySaver()).invoke(QUESTION, config)
    assert calls(walld, ids[0]) == [("unknown", None)] * 2


@pytest.mark.parametrize(
    ("shape", "form"),  # LangGraph refuses a list of Commands with dicts
    [("alone", "objects"), ("in a list", "objects"), ("alone", "dicts")],
)
def test_a_tool_that_answers_by_a_command(
    walld: walld_client.Client, agent: Callable[..., Any], shape: str, form: str
) -> None:
    """The result is what the model is told."""

    @tools.tool
    def weather(city: str, call_id: Annotated[str, tools.InjectedToolCallId]) -> Any:
        """The weather of a city."""
        other = messages.HumanMessage("beside it")
        told = [other, messages.ToolMessage(f"4 in {city}", tool_call_id=call_id)]
        said = {"role": "tool", "content": f"4 in {city}", "tool_call_id": call_id}
        update: list[Any] = told if form == "objects" else [other, said]
        command = types.Command(update={"messages": update})
        return command if shape == "alone" else [command]

    ids: list[str] = []
    config = {"callbacks": [callback(walld, "graphs", on_reply=ids.append)]}
    done = agent(weather).invoke(QUESTION, config)
    told = [one.content for one in done["messages"] if one.type == "tool"]
    assert told == ["4 in Oslo", "4 in Rome"]
    assert calls(walld, ids[0]) == [("done", one) for one in told]


@pytest.mark.parametrize("fails", [2, 9])
def test_a_tool_that_is_tried_again(
    walld: walld_client.Client, agent: Callable[..., Any], fails: int
) -> None:
    """What the model is told counts, and with it the reply ends; not what came before."""
    left = {"Oslo": fails, "Rome": 0}

    @tools.tool
    def weather(city: str) -> str:
        """The weather of a city."""
        left[city] -= 1
        if left[city] >= 0:
            raise ValueError(f"no weather of {city}")
        return f"{city} is dry"

    ids: list[str] = []
    ends: list[str] = []

    def begun(stream_id: str) -> None:
        reply = walld.recover(stream_id=ids[0]) if ids else None
        ends.extend([] if reply is None else [reply.status])
        ids.append(stream_id)

    again = middleware.ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    config = {"callbacks": [callback(walld, "graphs", on_reply=begun)]}
    state = agent(weather, middleware=[again]).invoke(QUESTION, config)
    first = ("done", "Oslo is dry") if fails == 2 else ("failed", "ValueError: no weather of Oslo")
    assert calls(walld, ids[0]) == [first, ("done", "Rome is dry")]
    told = [one.content for one in state["messages"] if one.type == "tool"]
    assert ("Oslo is dry" in told) == (fails == 2)
    assert (ends, len(ids)) == (["complete"], 2)
