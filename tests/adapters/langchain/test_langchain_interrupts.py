"""LangGraph: calls that wait for somebody, and the run that goes on with them."""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import wants

wants("langchain", "langchain-openai", "langgraph")
agents, middleware, tools, openai, memory, graphs, types = map(
    importlib.import_module,
    (
        "langchain.agents",
        "langchain.agents.middleware",
        "langchain_core.tools",
        "langchain_openai",
        "langgraph.checkpoint.memory",
        "langgraph.graph",
        "langgraph.types",
    ),
)
callback = importlib.import_module("walld_client.adapters.langchain").WalldCallback

QUESTION: Any = {"messages": [{"role": "user", "content": "hello"}]}
APPROVED = {"type": "approve"}
REJECTED = {"type": "reject"}
OPEN = ("unknown", None)


class Program:
    """An agent whose tool needs a human, and its replies."""

    def __init__(self, walld: walld_client.Client, replay: Replay, way: str) -> None:
        self.ids: list[str] = []
        self._walld = walld
        self._heard = self.callback()
        about = {"base_url": replay.url + "/v1", "api_key": "x", "max_retries": 0}

        @tools.tool
        def weather(city: str) -> Any:
            """The weather of a city."""
            for _ in range({"tool": 1, "tool twice": 2}.get(way, 0)):
                types.interrupt(city)
            return f"4 in {city}"

        asks = middleware.HumanInTheLoopMiddleware(interrupt_on={"weather": True})
        self.agent = agents.create_agent(
            openai.ChatOpenAI(model="tool", streaming=True, **about),
            [weather],
            middleware=[asks] if way == "middleware" else [],
            checkpointer=memory.InMemorySaver(),
        )

    def callback(self) -> Any:
        return callback(self._walld, "interrupts", on_reply=self.ids.append)

    def config(self, heard: Any = None, thread: str = "1") -> Any:
        return {"callbacks": [heard or self._heard], "configurable": {"thread_id": thread}}

    def reply(self, at: int = 0) -> Any:
        reply = self._walld.recover(stream_id=self.ids[at])
        assert reply is not None
        return reply

    def calls(self, at: int = 0) -> list[tuple[str | None, Any]]:
        return [(one.outcome, one.result) for one in self.reply(at).segments if one.kind == "tool"]


@pytest.fixture
def program(walld: walld_client.Client, replay: Replay) -> Callable[[str], Program]:
    return lambda way: Program(walld, replay, way)


def decided(result: Any, *decisions: Any) -> Any:
    """What goes on with an interrupted run: decisions for the middleware, a word for each tool."""
    if decisions:
        return types.Command(resume={"decisions": list(decisions)})
    return types.Command(resume={one.id: "yes" for one in result["__interrupt__"]})


@pytest.mark.parametrize("whose", ["one callback", "another one"])
@pytest.mark.parametrize("way", ["middleware", "tool", "tool twice"])
def test_results_come_into_the_reply_that_asked(
    program: Callable[[str], Program], way: str, whose: str
) -> None:
    it = program(way)
    result = it.agent.invoke(QUESTION, it.config())
    decisions = [APPROVED] * 2 if way == "middleware" else []
    while "__interrupt__" in result:
        assert (it.calls(), it.reply().status) == ([OPEN] * 2, "live")
        heard = it.callback() if whose == "another one" else None
        result = it.agent.invoke(decided(result, *decisions), it.config(heard))
    assert it.calls() == [("done", "4 in Oslo"), ("done", "4 in Rome")]
    first, second = it.reply(0), it.reply(1)
    assert (first.status, first.text) == ("complete", told(answer("chat", "tool"))["text"])
    assert (second.status, second.text) == ("complete", told(answer("chat", "after-tool"))["text"])


def test_in_an_event_loop(program: Callable[[str], Program]) -> None:
    it = program("middleware")

    async def main() -> None:
        result = await it.agent.ainvoke(QUESTION, it.config())
        go_on = decided(result, APPROVED, APPROVED)
        async for _ in it.agent.astream(go_on, it.config(), stream_mode="messages"):
            pass

    asyncio.run(main())
    assert it.calls() == [("done", "4 in Oslo"), ("done", "4 in Rome")]


@pytest.mark.parametrize("way", ["stops before", "left at the interrupt", "a node of a graph"])
def test_where_nothing_tells_that_somebody_is_waited_for(
    program: Callable[[str], Program], way: str
) -> None:
    """The reply ends with its run, though another one goes on."""
    it = program("at once" if way == "stops before" else "middleware")
    if way == "stops before":
        kept = it.agent.invoke(QUESTION, it.config(), interrupt_before=["tools"])
        go_on = None
    elif way == "a node of a graph":
        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node("agent", it.agent.copy(update={"checkpointer": None}))
        graph.add_edge(graphs.START, "agent")
        it.agent = graph.compile(checkpointer=memory.InMemorySaver())
        kept = it.agent.invoke(QUESTION, it.config())
        go_on = decided(kept, APPROVED, APPROVED)
    else:
        stream = it.agent.stream(QUESTION, it.config(), stream_mode="updates")
        kept = next(one for one in stream if "__interrupt__" in one)
        stream.close()
        go_on = decided(kept, APPROVED, APPROVED)
    assert (it.calls(), it.reply().status) == ([OPEN] * 2, "complete")
    it.agent.invoke(go_on, it.config())
    assert (it.calls(), it.reply(1).status) == ([OPEN] * 2, "complete")


def test_a_call_that_is_rejected_stays_open(program: Callable[[str], Program]) -> None:
    it = program("middleware")
    result = it.agent.invoke(QUESTION, it.config())
    it.agent.invoke(decided(result, APPROVED, REJECTED), it.config())
    assert (it.calls(), it.reply().status) == ([("done", "4 in Oslo"), OPEN], "complete")


def test_they_wait_as_long_as_the_program_has_the_message(
    program: Callable[[str], Program],
) -> None:
    it = program("middleware")
    result = it.agent.invoke(QUESTION, it.config())
    go_on = decided(result, APPROVED, APPROVED)
    del result
    gc.collect()
    assert (it.calls(), it.reply().status) == ([OPEN] * 2, "complete")
    it.agent.invoke(go_on, it.config())
    assert it.calls() == [OPEN] * 2
    assert it.reply(1).status == "complete"


def test_two_threads_whose_servers_give_the_same_ids(program: Callable[[str], Program]) -> None:
    """Each result stands in the reply of its own thread."""
    it = program("tool")
    kept = [it.agent.invoke(QUESTION, it.config(thread=one)) for one in "ab"]
    for at, thread in ((1, "b"), (0, "a")):
        assert it.calls(at) == [OPEN] * 2
        it.agent.invoke(decided(kept[at]), it.config(thread=thread))
        assert it.calls(at) == [("done", "4 in Oslo"), ("done", "4 in Rome")]


def test_a_question_instead_of_a_decision(program: Callable[[str], Program]) -> None:
    """The model is asked again, and asks for tools by the same ids: they are other calls."""
    it = program("middleware")
    first = it.agent.invoke(QUESTION, it.config())
    second = it.agent.invoke(QUESTION, it.config())
    assert it.calls(1) == [OPEN] * 2
    it.agent.invoke(decided(second, APPROVED, APPROVED), it.config())
    assert it.calls(1) == [("done", "4 in Oslo"), ("done", "4 in Rome")]
    assert it.calls(0) == [OPEN] * 2
    assert len(first["messages"]) == 2
