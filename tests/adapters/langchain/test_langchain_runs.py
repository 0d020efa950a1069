"""LangChain: runs beside each other and in each other, and what is told more than once.

In this process, because contexts are what it is about; the server gives every run the same two call
ids, as real ones do (`call_0`, `functions.weather:0`).
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import walld_client
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import kept, wants
from walld_client import PartialReply

wants("langchain", "langchain-openai")
agents, httpx2, openai, runnables, tools = map(
    importlib.import_module,
    (
        "langchain.agents",
        "httpx2",
        "langchain_openai",
        "langchain_core.runnables",
        "langchain_core.tools",
    ),
)
callback = importlib.import_module("walld_client.adapters.langchain").WalldCallback

QUESTION: Any = {"messages": [{"role": "user", "content": "hello"}]}
user: ContextVar[str] = ContextVar("user")


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def model(replay: Replay, loop: asyncio.Runner) -> Iterator[Callable[..., Any]]:
    """ChatOpenAI on the replay server, as this model."""
    about: dict[str, Any] = {"base_url": replay.url + "/v1", "api_key": "x", "max_retries": 0}
    about |= {"http_client": httpx2.Client(), "http_async_client": httpx2.AsyncClient()}

    def make(name: str, **more: Any) -> Any:
        return openai.ChatOpenAI(model=name, streaming=True, **about, **more)

    yield make
    about["http_client"].close()
    loop.run(about["http_async_client"].aclose())


class Meeting:
    """A tool that answers only once as many of its calls run as are to run at once."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._all_here = asyncio.Event()

    async def weather(self, city: str) -> str:
        """The weather of a city, of one user."""
        self._left -= 1
        if self._left == 0:
            self._all_here.set()
        await self._all_here.wait()
        return f"{user.get()} in {city}"

    @property
    def tool(self) -> Any:
        return tools.StructuredTool.from_function(coroutine=self.weather, name="weather")


def results(replies: list[PartialReply]) -> list[Any]:
    """Of all calls, in their order."""
    return [one.result for reply in replies for one in reply.segments if one.kind == "tool"]


# --- whose result it is ---------------------------------------------------------------------------


def test_runs_beside_each_other(
    walld: walld_client.Client, model: Callable[..., Any], loop: asyncio.Runner
) -> None:
    """Same call ids at the same time, one callback: each has its own results."""
    users = [f"beside {number}" for number in range(6)]

    async def main() -> None:
        agent = agents.create_agent(model("tool"), [Meeting(2 * len(users)).tool])
        heard = callback(walld, user.get)

        async def one(name: str) -> None:
            user.set(name)
            await agent.ainvoke(QUESTION, config={"callbacks": [heard]})

        await asyncio.gather(*[asyncio.create_task(one(name)) for name in users])

    loop.run(main())
    for name in users:
        replies = walld.recover_all(name)
        assert results(replies) == [f"{name} in Oslo", f"{name} in Rome"]
        assert [reply.status for reply in replies] == ["complete", "complete"]


def test_a_user_who_is_not_recorded(
    walld: walld_client.Client, model: Callable[..., Any], loop: asyncio.Runner
) -> None:
    """What tools give to one whom walld is not to record is not in another's reply."""

    async def main() -> None:
        agent = agents.create_agent(model("tool"), [Meeting(4).tool])
        heard = callback(walld, lambda: None if user.get() == "nobody" else user.get())

        async def one(name: str) -> None:
            user.set(name)
            await agent.ainvoke(QUESTION, config={"callbacks": [heard]})

        names = ("somebody", "nobody")
        await asyncio.gather(*[asyncio.create_task(one(name)) for name in names])

    loop.run(main())
    assert results(walld.recover_all("somebody")) == ["somebody in Oslo", "somebody in Rome"]


def test_runs_in_a_run(
    walld: walld_client.Client, model: Callable[..., Any], loop: asyncio.Runner
) -> None:
    """Two agents that one chain runs at once: a result goes to the nearest call."""
    ids: list[str] = []

    async def main() -> None:
        agent = agents.create_agent(model("tool"), [Meeting(4).tool])

        async def one(name: str, config: Any) -> None:
            user.set(name)
            await agent.ainvoke(QUESTION, config=config)

        async def both(_: str, config: Any) -> None:
            names = ("left", "right")
            await asyncio.gather(*[asyncio.create_task(one(name, config)) for name in names])

        heard = callback(walld, "runs in a run", on_reply=ids.append)
        await runnables.RunnableLambda(both).ainvoke("x", config={"callbacks": [heard]})

    loop.run(main())
    replies = [walld.recover(stream_id=one) for one in ids]
    found = [results([one]) for one in replies if one is not None]
    assert sorted(one for one in found if one) == [
        ["left in Oslo", "left in Rome"],
        ["right in Oslo", "right in Rome"],
    ]


def test_a_result_that_may_be_of_either(
    walld: walld_client.Client, model: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It is in neither, and the log says so once."""

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    tool = tools.tool(weather)

    def both(_: str, config: Any) -> None:
        first = model("tool").invoke("hello", config)
        model("tool").invoke("hello", config)
        for call in first.tool_calls:
            tool.invoke(call, config)

    heard = callback(walld, "either")
    with caplog.at_level(logging.WARNING, "walld"):
        runnables.RunnableLambda(both).invoke("x", config={"callbacks": [heard]})
    replies = walld.recover_all("either")
    assert results(replies) == [None] * 4
    assert [reply.status for reply in replies] == ["complete", "complete"]
    assert [one.message.split(":")[0] for one in caplog.records if one.name == "walld"] == [
        "a tool's result is not recorded"
    ]


def test_a_callback_that_sees_the_model_alone(
    walld: walld_client.Client, model: Callable[..., Any]
) -> None:
    """Nobody tells it that the run is over: its replies end with the answers."""

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    heard = callback(walld, "model alone")
    agents.create_agent(model("tool", callbacks=[heard]), [weather]).invoke(QUESTION)
    replies = walld.recover_all("model alone")
    assert [reply.status for reply in replies] == ["complete", "complete"]
    assert replies[0].finish_reason == "tool_calls"


def test_a_callback_that_sees_the_inner_chain_alone(
    walld: walld_client.Client, model: Callable[..., Any]
) -> None:
    """The end of that one is the end of its run, calls without a result or not."""

    def inner(_: str, config: Any) -> Any:
        return model("tool").invoke("hello", config)

    heard = callback(walld, "inner chain")
    chain = runnables.RunnableLambda(inner).with_config(callbacks=[heard])
    (runnables.RunnableLambda(str) | chain).invoke("x")
    assert [reply.status for reply in walld.recover_all("inner chain")] == ["complete"]


# --- whose session it is --------------------------------------------------------------------------


def test_the_session_is_that_of_the_beginning(
    walld: walld_client.Client, model: Callable[..., Any]
) -> None:
    """It is asked for once, when the model is asked, and not when the text comes."""
    asked: list[str] = []

    def session() -> str:
        asked.append(user.get())
        return asked[-1]

    user.set("session alice")
    stream = model("text:frames").stream("hello", config={"callbacks": [callback(walld, session)]})
    assert next(stream).content == "", "nothing is said yet"
    user.set("session bob")
    list(stream)
    assert asked == ["session alice"]
    assert [one.text for one in walld.recover_all("session alice")] == [
        told(answer("chat", "text"))["text"]
    ]


def test_a_session_that_cannot_be_told(
    walld: walld_client.Client, model: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def session() -> str:
        raise LookupError("no user")

    with caplog.at_level(logging.ERROR, "walld"):
        done = model("text").invoke("hello", config={"callbacks": [callback(walld, session)]})
    assert done.content == told(answer("chat", "text"))["text"]
    assert [one.message.split(":")[0] for one in caplog.records] == ["a model call is not recorded"]


# --- what is told more than once ------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("scenario", ["text", "tool"])
@pytest.mark.parametrize("times", [2, 3])
def test_a_callback_that_is_given_twice(
    walld: walld_client.Client,
    model: Callable[..., Any],
    loop: asyncio.Runner,
    times: int,
    scenario: str,
    colour: str,
) -> None:
    """Each telling has the same run id; none is another reply, and no text is there twice."""
    ids: list[str] = []
    heard = callback(walld, "twice", on_reply=ids.append)
    bound = model(scenario).with_config(callbacks=[heard] * (times - 1))
    config = {"callbacks": [heard]}
    if colour == "sync":
        bound.invoke("hello", config=config)
    else:
        loop.run(bound.ainvoke("hello", config=config))
    (reply,) = [walld.recover(stream_id=one) for one in ids]
    assert reply is not None
    assert kept(reply) == told(answer("chat", scenario)) | {"reasoning": ""}
    assert reply.status == "complete"


def test_an_agent_with_a_callback_that_is_given_twice(
    walld: walld_client.Client, model: Callable[..., Any]
) -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"4 degrees in {city}"

    ids: list[str] = []
    heard = callback(walld, "twice", on_reply=ids.append)
    bound = model("tool").with_config(callbacks=[heard])
    agents.create_agent(bound, [tools.tool(weather).with_config(callbacks=[heard]).bound]).invoke(
        QUESTION, config={"callbacks": [heard]}
    )
    replies = [walld.recover(stream_id=one) for one in ids]
    first, second = [one for one in replies if one is not None]
    assert results([first]) == ["4 degrees in Oslo", "4 degrees in Rome"]
    own = [one.name for one in first.segments if one.kind == "custom"]
    assert [name for name in own if name != "model_call"] == ["tool_started"] * 2
    assert second.text == told(answer("chat", "after-tool"))["text"]
