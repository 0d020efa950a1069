"""LangChain: what the program leaves before its end, by a cancel, a timeout or without a word.

In this process: that nothing is kept of it is what half of it is about.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import walld_client
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import wants
from daemon_process import PATIENCE_SECONDS, until

wants("langchain", "langchain-openai", "langchain-anthropic")
agents, httpx2, anthropic, openai, runnables, tools = map(
    importlib.import_module,
    (
        "langchain.agents",
        "httpx2",
        "langchain_anthropic",
        "langchain_openai",
        "langchain_core.runnables",
        "langchain_core.tools",
    ),
)
callback = importlib.import_module("walld_client.adapters.langchain").WalldCallback

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* is in beta:DeprecationWarning", "ignore:.* is experimental:DeprecationWarning"
)
QUESTION: Any = {"messages": [{"role": "user", "content": "hello"}]}


@tools.tool
async def weather(city: str) -> str:
    """The weather of a city."""
    raise AssertionError("not asked for here")


class Program:
    """A callback, and what it knows."""

    def __init__(self, walld: walld_client.Client, replay: Replay) -> None:
        self.ids: list[str] = []
        self.asked = asyncio.Event()
        """A model is."""
        self.spoke = asyncio.Event()
        """It has said something."""
        self._walld = walld
        self._base = replay.url
        self._http: list[Any] = []
        self.heard = callback(walld, self._session, on_reply=self._begun)
        self.config = {"callbacks": [self.heard]}

    def _session(self) -> str:
        self.asked.set()
        return "left"

    def _begun(self, stream_id: str) -> None:
        self.ids.append(stream_id)
        self.spoke.set()

    def model(self, name: str, provider: str = "openai") -> Any:
        about: dict[str, Any] = {"model": name, "api_key": "x", "max_retries": 0}
        about["streaming"] = True
        if provider == "anthropic":
            return anthropic.ChatAnthropic(base_url=self._base, max_tokens=9, **about)
        # Of its own: LangChain's is one for all event loops.
        self._http.append(httpx2.AsyncClient())
        about["http_async_client"] = self._http[-1]
        return openai.ChatOpenAI(base_url=self._base + "/v1", **about)

    async def close(self) -> Program:
        """Itself, without a connection."""
        for client in self._http:
            await client.aclose()
        return self

    def agent(self, name: str) -> Any:
        return agents.create_agent(self.model(name), [weather])

    def replies(self) -> list[walld_client.PartialReply]:
        found = [self._walld.recover(stream_id=one) for one in self.ids]
        return [one for one in found if one is not None]

    def statuses(self) -> list[str]:
        return [one.status for one in self.replies()]

    async def has_all_of(self, name: str, provider: str = "openai", count: int = 1) -> None:
        """Wait until all that a server holds back behind is taken: of a cancel that comes with a
        chunk asyncio.wait_for of Python 3.11, in which LangChain waits, tells nobody."""
        frames = answer("messages" if provider == "anthropic" else "chat", "text")
        text = told(frames[: int(name.partition("hold")[2])])["text"]
        await self._until(lambda: [one.text for one in self.replies()], [text] * count)

    async def become(self, *statuses: str) -> None:
        """Wait for these; not for what a collector does: the program has all of it."""
        await self._until(self.statuses, [*statuses])

    async def _until(self, have: Callable[[], list[str]], wanted: list[str]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while (found := have()) != wanted:
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.01)

    def keeps(self) -> int:
        """Runs, tools and answers that it remembers."""
        gc.collect()
        heard, board = self.heard, self.heard._board
        of_it = (heard._answers, heard._tools, heard._places, board._waiting, board._open)
        of_it += (heard._interrupted, heard._tasks)
        return sum(len(one) for one in of_it)


async def drained(chunks: AsyncIterator[Any]) -> None:
    async for _ in chunks:
        pass


async def events(it: Program, name: str) -> Any:
    """Of an agent, as a run that its reader drives."""
    return await it.agent(name).astream_events(QUESTION, it.config, version="v3")


async def events_read(it: Program, name: str) -> None:
    await drained(await events(it, name))


async def words_read(it: Program, name: str) -> None:
    run = await events(it, name)
    async for message in run.messages:
        await drained(message.text)


async def output_awaited(it: Program, name: str) -> None:
    await (await events(it, name)).output()


WAYS: dict[str, Callable[[Program, str], Awaitable[Any]]] = {
    "ainvoke": lambda it, name: it.model(name).ainvoke("hello", it.config),
    "ainvoke Anthropic": lambda it, name: it.model(name, "anthropic").ainvoke("hello", it.config),
    "abatch": lambda it, name: it.model(name).abatch(["hello", "there"], it.config),
    "astream": lambda it, name: drained(it.model(name).astream("hello", it.config)),
    "agent ainvoke": lambda it, name: it.agent(name).ainvoke(QUESTION, it.config),
    "agent astream": lambda it, name: drained(it.agent(name).astream(QUESTION, it.config)),
    "agent messages": lambda it, name: drained(
        it.agent(name).astream(QUESTION, it.config, stream_mode="messages")
    ),
    "agent events": events_read,
    "agent events, words": words_read,
    "agent events, output": output_awaited,
}


async def cancel(running: asyncio.Task[Any]) -> None:
    """As a timeout does; the program goes on, and so does its event loop."""
    while not running.done():  # one that comes as a task of LangGraph's ends is lost there
        running.cancel()
        await asyncio.wait({running}, timeout=1)
    for _ in range(10):
        await asyncio.sleep(0)


async def cancel_all(running: asyncio.Task[Any]) -> None:
    """`cancel`, and of a way in which nothing is to go on behind it.

    asyncio.wait_for of Python 3.11 tells nobody of a cancel that comes with what it waits for: then
    a task of LangGraph goes on behind its caller's end, until somebody cancels it, too.
    """
    await cancel(running)
    for left in asyncio.all_tasks() - {asyncio.current_task()}:
        left.cancel()


@pytest.mark.parametrize("way", WAYS)
def test_cancelled_in_an_answer(walld: walld_client.Client, replay: Replay, way: str) -> None:
    """The reply is cancelled while the program lives on, and nothing of it is remembered."""

    async def main() -> Program:
        it = Program(walld, replay)
        provider = "anthropic" if "Anthropic" in way else "openai"
        name = "text:frames:hold6" if provider == "anthropic" else "text:frames:hold4"
        running = asyncio.ensure_future(WAYS[way](it, name))
        await it.has_all_of(name, provider, 2 if way == "abatch" else 1)
        await cancel_all(running)
        await it.become(*["cancelled"] * len(it.ids))  # by nothing but the end of its task
        return await it.close()

    assert asyncio.run(main()).keeps() == 0


@pytest.mark.parametrize("way", WAYS)
def test_cancelled_before_the_first_word(
    walld: walld_client.Client, replay: Replay, way: str
) -> None:
    async def main() -> Program:
        it = Program(walld, replay)
        running = asyncio.ensure_future(WAYS[way](it, "text:frames:hold0"))
        await it.asked.wait()
        await cancel_all(running)
        return await it.close()

    it = asyncio.run(main())
    assert (it.ids, it.keeps()) == ([], 0)


@pytest.mark.parametrize("way", ["agent", "alone"])
def test_cancelled_in_a_tool(walld: walld_client.Client, replay: Replay, way: str) -> None:
    async def main() -> Program:
        it, runs = Program(walld, replay), asyncio.Event()

        @tools.tool
        async def weather(city: str) -> None:
            """The weather of a city."""
            runs.set()
            await asyncio.Event().wait()

        if way == "agent":
            agent = agents.create_agent(it.model("tool"), [weather])
            asked = agent.ainvoke(QUESTION, it.config)
        else:
            call = {"type": "tool_call", "name": "weather", "args": {"city": "Oslo"}, "id": "c"}
            asked = weather.ainvoke(call, it.config)
        running = asyncio.ensure_future(asked)
        await runs.wait()
        await cancel(running)
        await it.become(*(["complete"] if way == "agent" else []))
        return await it.close()

    assert asyncio.run(main()).keeps() == 0


def test_a_stream_that_another_task_reads_on(walld: walld_client.Client, replay: Replay) -> None:
    """The task that read its first words is cancelled: the stream is not, and no word is lost."""
    said: list[str] = []

    async def main() -> Program:
        it = Program(walld, replay)
        has_read = asyncio.Event()
        chunks = it.model("text:frames:ms5").astream("hello", it.config)

        async def first() -> None:
            async for chunk in chunks:
                if chunk.content:
                    said.append(chunk.content)
                    break
            has_read.set()
            await asyncio.Event().wait()

        reads = asyncio.ensure_future(first())
        await has_read.wait()
        await cancel(reads)
        assert it.statuses() == ["live"]
        said.extend([chunk.content async for chunk in chunks])
        return await it.close()

    it = asyncio.run(main())
    reply = walld.recover(stream_id=it.ids[0])
    assert reply is not None
    assert (reply.status, reply.text) == ("complete", "".join(said))
    assert reply.text == told(answer("chat", "text"))["text"]
    assert it.keeps() == 0


@pytest.mark.parametrize("scenario", ["text", "tool"])
def test_a_stream_of_events_that_nobody_reads_on(
    walld: walld_client.Client, replay: Replay, scenario: str
) -> None:
    """LangChain says nothing: the reply ends when the stream is collected."""
    it = Program(walld, replay)
    stream = it.model(scenario).stream_events("hello", config=it.config, version="v3")
    for event in stream:
        if event["event"] == "content-block-delta" and (scenario == "text" or event["index"]):
            break
    assert it.statuses() == ["live"]
    del stream, event
    assert it.keeps() == 0
    until(lambda: it.statuses() == ["cancelled"], "cancelled")


async def read_until_cancelled(it: Program, stream: Any, pieces: Any, way: str, name: str) -> None:
    """Its reader waits for something else than its next piece when it is cancelled."""

    is_elsewhere = asyncio.Event()

    async def read() -> None:
        async for _ in pieces:
            if it.spoke.is_set():
                is_elsewhere.set()
                await asyncio.Event().wait()

    async def read_within() -> None:
        async with stream:
            await read()

    running = asyncio.ensure_future(read_within() if way == "with" else read())
    await is_elsewhere.wait()
    if "hold" in name:
        await it.has_all_of(name)
    await cancel(running)


@pytest.mark.parametrize("way", ["held", "with"])
def test_events_of_an_agent_whose_reader_is_cancelled_at_something_else(
    walld: walld_client.Client, replay: Replay, way: str
) -> None:
    """LangGraph is told by `async with` alone; else the run waits until nobody has it."""

    async def read(it: Program) -> None:
        name = "text:frames:hold4"
        run = await events(it, name)
        await read_until_cancelled(it, run, run, way, name)
        await it.become("cancelled" if way == "with" else "live")

    async def main() -> Program:
        it = Program(walld, replay)
        await read(it)
        gc.collect()
        await asyncio.to_thread(until, lambda: it.statuses() == ["cancelled"], "cancelled")
        return await it.close()

    assert asyncio.run(main()).keeps() == 0


@pytest.mark.parametrize("way", ["held", "with"])
def test_events_of_a_model_whose_reader_is_cancelled(
    walld: walld_client.Client, replay: Replay, way: str
) -> None:
    """LangChain reads on by itself, so that the answer comes whole; `async with` cancels that."""
    end = "cancelled" if way == "with" else "complete"

    async def main() -> Program:
        it = Program(walld, replay)
        name = "text:frames:hold4" if way == "with" else "text:frames"
        stream = await it.model(name).astream_events("hello", it.config, version="v3")
        await read_until_cancelled(it, stream, stream.text, way, name)
        await asyncio.to_thread(until, lambda: it.statuses() == [end], end)
        return await it.close()

    it = asyncio.run(main())
    reply = walld.recover(stream_id=it.ids[0])
    assert reply is not None
    assert way == "with" or reply.text == told(answer("chat", "text"))["text"]
    assert it.keeps() == 0


def test_an_answer_that_outlives_its_run(walld: walld_client.Client, replay: Replay) -> None:
    """Nobody tells when its tools have run: it ends with the answer."""

    async def main() -> Program:
        it = Program(walld, replay)
        background: list[asyncio.Task[Any]] = []

        async def first(_: str, config: Any) -> None:
            asked = it.model("tool:ms1").ainvoke("hello", config)
            background.append(asyncio.ensure_future(asked))
            await it.asked.wait()

        await runnables.RunnableLambda(first).ainvoke("x", config=it.config)
        await background[0]
        assert it.statuses() == ["complete"]
        return await it.close()

    assert asyncio.run(main()).keeps() == 0


@pytest.mark.parametrize("scenario", ["text", "tool"])
@pytest.mark.parametrize("way", ["events", "text", "output"])
def test_events_of_a_model_that_are_read_are_released(
    walld: walld_client.Client, replay: Replay, way: str, scenario: str
) -> None:
    """LangChain says the end of the model call only behind all that the program is given."""

    async def main() -> Program:
        it = Program(walld, replay)
        stream = await it.model(scenario).astream_events("hello", it.config, version="v3")
        if way == "output":
            await stream.output
        else:
            await drained(stream if way == "events" else stream.text)
        assert it.statuses() == ["complete"]
        walld.release(it.ids[0])
        assert it.statuses() == []
        return await it.close()

    assert asyncio.run(main()).keeps() == 0
