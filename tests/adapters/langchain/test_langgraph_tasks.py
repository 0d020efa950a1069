"""Replies of a graph's tasks: whose they are, and that a saver releases those of tasks it has."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
import walld_client
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import Nursery, environment, wants
from daemon_process import DaemonProcess
from walld_client import aio

wants("langgraph", "langgraph-checkpoint-conformance", "langchain-openai")

from langchain_core.messages import AnyMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from langgraph import graph as graphs  # noqa: E402
from langgraph import types  # noqa: E402
from langgraph.graph.message import add_messages  # noqa: E402
from langgraph.prebuilt import ToolNode  # noqa: E402
from walld_client.adapters.langchain import WalldCallback  # noqa: E402
from walld_client.adapters.langgraph import WalldSaver  # noqa: E402

DURABILITIES: tuple[Any, ...] = ("sync", "async", "exit")
each_client = pytest.mark.parametrize("client", ["sync", "aio"])
each_durability = pytest.mark.parametrize("durability", DURABILITIES)


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], add]


class Asker:
    """Runs graphs in one colour, with a saver and a callback of one client."""

    def __init__(
        self, daemon: DaemonProcess, replay: Replay, loop: Any, client: str, thread: str
    ) -> None:
        self.is_aio = client == "aio"
        self.thread = f"{thread} {client}"
        self.loop = loop
        self.daemon, self.replay = daemon, replay
        self.walld: Any = (aio if self.is_aio else walld_client).connect(daemon.socket_path)
        self.saver = WalldSaver(self.walld)
        self.ids: list[str] = []

    def model(self, name: str) -> Any:
        about = {"base_url": self.replay.url + "/v1", "api_key": "x", "max_retries": 0}
        return ChatOpenAI(model=name, streaming=True, **about)

    def run(self, built: Any, given: Any, **more: Any) -> Any:
        graph = built.compile(checkpointer=self.saver)
        callback = WalldCallback(
            self.walld, self.saver.session_id(self.thread), on_reply=self.ids.append
        )
        config: Any = {"configurable": {"thread_id": self.thread}, "callbacks": [callback]}
        if self.is_aio:
            return self.loop.run_until_complete(graph.ainvoke(given, config, **more))
        return graph.invoke(given, config, **more)

    def left(self) -> list[Any]:
        """Its replies that are not released."""
        found = self.daemon.reader.recover_all(self.saver.session_id(self.thread))
        assert {one.stream_id for one in found} <= set(self.ids)
        return found

    def close(self) -> None:
        if self.is_aio:
            self.loop.run_until_complete(self.walld.close())
        else:
            self.walld.close()


@pytest.fixture(scope="module")
def loop() -> Any:
    """One for all: LangChain keeps connections of a loop for the next model."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture
def asker(kept_by: DaemonProcess, replay: Replay, loop: Any) -> Any:
    made: list[Asker] = []

    def make(client: str, thread: str) -> Asker:
        made.append(Asker(kept_by, replay, loop, client, thread))
        return made[-1]

    yield make
    for one in made:
        one.close()


QUESTION: Any = {"messages": [{"role": "user", "content": "hello"}], "notes": []}


def speaking(asker: Asker, then: Callable[[], None] = lambda: None) -> Any:
    """Two nodes: one that speaks, and does what is asked of it; one that notes something."""

    def speak(state: Talk) -> dict[str, Any]:
        said = asker.model("text").invoke(state["messages"])
        then()
        return {"messages": [said]}

    async def aspeak(state: Talk) -> dict[str, Any]:
        said = await asker.model("text").ainvoke(state["messages"])
        then()
        return {"messages": [said]}

    built: Any = graphs.StateGraph(Talk)
    built.add_node("speak", aspeak if asker.is_aio else speak)
    built.add_node("note", lambda _: {"notes": ["done"]})
    built.add_edge(graphs.START, "speak")
    built.add_edge("speak", "note")
    built.add_edge("note", graphs.END)
    return built


# --- released ------------------------------------------------------------------------------------


@each_client
@each_durability
def test_what_a_task_said_is_released_once_the_saver_has_it(
    asker: Any, client: str, durability: str
) -> None:
    one = asker(client, f"had {durability}")
    done = one.run(speaking(one), QUESTION, durability=durability)
    assert done["messages"][-1].text == told(answer("chat", "text"))["text"]
    assert len(one.ids) == 1
    assert one.left() == []


@each_client
@each_durability
def test_a_reply_goes_with_the_last_of_its_tools(asker: Any, client: str, durability: str) -> None:
    """While its tools run it is there, with the results of those that have answered."""
    one = asker(client, f"tools {durability}")
    seen: list[tuple[str, int]] = []

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        seen.extend((reply.stream_id, reply.last_seq) for reply in one.left())
        return f"{city} is dry"

    def ask(state: Talk) -> dict[str, Any]:
        return {"messages": [one.model("tool").bind_tools([weather]).invoke(state["messages"])]}

    async def aask(state: Talk) -> dict[str, Any]:
        model = one.model("tool").bind_tools([weather])
        return {"messages": [await model.ainvoke(state["messages"])]}

    def onward(state: Talk) -> Any:
        calls = getattr(state["messages"][-1], "tool_calls", ())
        return [types.Send("tools", {**state, "call": call}) for call in calls] or graphs.END

    node = ToolNode([weather])

    def run_one(state: Any) -> Any:
        return {"messages": node.invoke([{**state["call"], "type": "tool_call"}])["messages"]}

    built: Any = graphs.StateGraph(Talk)
    built.add_node("ask", aask if one.is_aio else ask)
    built.add_node("tools", run_one)
    built.add_edge(graphs.START, "ask")
    built.add_conditional_edges("ask", onward, ["tools", graphs.END])
    built.add_edge("tools", "ask")
    done = one.run(built, QUESTION, durability=durability)
    assert [said.type for said in done["messages"]] == ["human", "ai", "tool", "tool", "ai"]
    assert {stream_id for stream_id, _ in seen} == {one.ids[0]}
    assert len(one.ids) == 2
    assert one.left() == []


@each_client
def test_calls_that_no_tool_answers_go_with_their_run(asker: Any, client: str) -> None:
    """As those of a model that is to answer in a shape."""
    one = asker(client, "shape")

    def ask(state: Talk) -> dict[str, Any]:
        return {"messages": [one.model("tool").invoke(state["messages"])]}

    built: Any = graphs.StateGraph(Talk)
    built.add_node("ask", ask)
    built.add_edge(graphs.START, "ask")
    one.run(built, QUESTION, durability="sync")
    assert len(one.ids) == 1
    assert one.left() == []


@each_client
@each_durability
def test_what_a_graph_within_a_task_said_goes_with_the_task(
    asker: Any, client: str, durability: str
) -> None:
    one = asker(client, f"within {durability}")
    inner = speaking(one).compile()
    built: Any = graphs.StateGraph(Talk)
    built.add_node("agent", inner)
    built.add_edge(graphs.START, "agent")
    one.run(built, QUESTION, durability=durability)
    assert len(one.ids) == 1
    assert one.left() == []


# --- kept ----------------------------------------------------------------------------------------


@each_client
@each_durability
def test_what_a_task_said_that_failed_is_kept(asker: Any, client: str, durability: str) -> None:
    one = asker(client, f"failed {durability}")

    def fails() -> None:
        raise ValueError("behind its words")

    with pytest.raises(ValueError, match="behind its words"):
        one.run(speaking(one, fails), QUESTION, durability=durability)
    (kept,) = one.left()
    assert (kept.meta["node"], kept.status) == ("speak", "complete")
    # Run again, it says it again; both are in the state then.
    done = one.run(speaking(one), None, durability=durability)
    assert len(done["messages"]) == 2
    assert len(one.ids) == 2
    if durability != "exit":
        assert one.left() == []


@each_client
def test_what_a_task_said_that_was_interrupted_is_kept_until_it_is_done(
    asker: Any, client: str
) -> None:
    one = asker(client, "interrupted")
    answers: list[str] = []
    built = speaking(one, lambda: answers.append(types.interrupt("go on?")))
    one.run(built, QUESTION, durability="sync")
    (kept,) = one.left()
    assert (kept.meta["node"], answers) == ("speak", [])
    one.run(built, types.Command(resume="yes"), durability="sync")
    assert answers == ["yes"]
    assert one.left() == []


def test_without_a_saver_of_wallds_nothing_is_released(asker: Any) -> None:
    one = asker("sync", "no saver")
    callback = WalldCallback(one.walld, one.thread, on_reply=one.ids.append)
    speaking(one).compile().invoke(QUESTION, {"callbacks": [callback]})
    (kept,) = one.left()
    assert (kept.meta["node"], kept.status) == ("speak", "complete")


# --- killed --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("langgraph_thread")


@pytest.mark.parametrize(
    ("colour", "client"), [("sync", "sync"), ("async", "sync"), ("async", "aio")]
)
def test_an_orphan_says_whose_it_is(
    programs: Nursery, kept_by: DaemonProcess, colour: str, client: str
) -> None:
    """Its task is what LangGraph calls the one that the next run goes on with."""
    thread = f"whose {colour} {client}"
    spec = {"thread": thread, "colour": colour, "client": client}
    frames = answer("chat", "text")
    place = [at for at, frame in enumerate(frames, 1) if frame.said][2]
    model = f"text:frames:hold{place}"
    trial = programs.run_until(told(frames[:place]), **spec, what="run", model=model)
    trial.kill()
    look = programs.run(**spec, what="look", model="text").done()
    (task,) = look.words("tasks")[0][0]
    lost = kept_by.reader.recover(thread)
    assert lost is not None
    assert (lost.status, lost.meta["node"], lost.meta["task"]) == ("crashed", "speak", task)
    assert lost.meta["checkpoint_ns"] == f"speak:{task}"

    on = programs.run(**spec, what="resume", model="text").done()
    assert on.raised is None, on.lines
    # The task is had now, and so is what was said of it before.
    programs.run(**spec, what="look", model="text").done()
    assert kept_by.reader.recover_all(thread) == []


@each_client
def test_orphans_of_tasks_that_the_saver_has_are_released_where_it_is_read(
    asker: Any, kept_by: DaemonProcess, client: str
) -> None:
    """Killed between a task's writes and its release; not those of others, nor with open calls."""
    one = asker(client, "between")
    one.run(speaking(one), QUESTION, durability="sync")
    session_id = one.saver.session_id(one.thread)
    written = kept_by.reader.session(session_id).find("langgraph.writes")
    had = next(
        event["payload"]["task_id"]
        for event in written
        if any(line["channel"] == "messages" for line in event["payload"]["writes"])
        and event["payload"]["task_id"] != "00000000-0000-0000-0000-000000000000"
    )
    other = "0f0f0f0f-0000-0000-0000-000000000000"
    spoken = [
        {"stream": "had", "space": f"speak:{had}"},
        {"stream": "within", "space": f"agent:{had}|speak:{other}"},
        {"stream": "answered", "space": f"speak:{had}", "tool": f"tools:{had}"},
        {"stream": "other", "space": f"speak:{other}"},
        {"stream": "answered by another", "space": f"speak:{had}", "tool": f"tools:{other}"},
        {"stream": "open", "space": f"speak:{had}", "tool": None},
        {"stream": "no task", "space": None},
    ]
    script = """
import json, os, signal, sys
import walld_client
walld = walld_client.connect(sys.argv[1])
for one in json.loads(sys.argv[3]):
    meta = {} if one["space"] is None else {"checkpoint_ns": one["space"]}
    reply = walld.reply(sys.argv[2], stream_id=one["stream"] + sys.argv[4], **meta)
    reply.token("said")
    if "tool" in one:
        reply.tool("weather", {}, call_id="c")
        if one["tool"]:
            reply.tool_result("dry", call_id="c", checkpoint_ns=one["tool"])
    assert reply.drain(10)
os.kill(os.getpid(), signal.SIGKILL)
"""
    args = [kept_by.socket_path, session_id, json.dumps(spoken), client]
    command = [sys.executable, "-c", script, *args]
    done = subprocess.run(command, env=environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    again = asker(client, "between")
    again.ids += [told["stream"] + client for told in spoken]
    assert len(again.left()) == len(spoken)
    config: Any = {"configurable": {"thread_id": again.thread}}
    if again.is_aio:
        again.loop.run_until_complete(again.saver.aget_tuple(config))
    else:
        again.saver.get_tuple(config)
    kept = {reply.stream_id.removesuffix(client) for reply in again.left()}
    assert kept == {"other", "answered by another", "open", "no task"}
    for reply in again.left():
        kept_by.reader.resolve(reply.stream_id, reply.last_seq)


# --- forked while a checkpoint is on its way ------------------------------------------------------

FORKED = """
import asyncio, os, signal, sys, threading, time, warnings
import walld_client
from langgraph.checkpoint.base import empty_checkpoint
from walld_client import aio
from walld_client.adapters.langgraph import WalldSaver

warnings.simplefilter("ignore", DeprecationWarning)  # it has threads: that is what is tried
path, client, daemon = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = {"configurable": {"thread_id": "forked " + client, "checkpoint_ns": ""}}
made = (aio if client == "aio" else walld_client).connect(path, timeout=60)
saver = WalldSaver(made)
lock = saver._thread(config).lock

def put():
    given = config, empty_checkpoint(), {"source": "input", "step": 0, "parents": {}}, {}
    return saver.aput(*given) if client == "aio" else saver.put(*given)

def forked():
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that hangs
        os.kill(daemon, signal.SIGCONT)
        if client == "aio":
            asyncio.run(put())
        else:
            put()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)

async def main():
    at_it = asyncio.create_task(put())
    while not lock.locked():
        await asyncio.sleep(0.01)
    code = forked()
    await at_it
    return code

os.kill(daemon, signal.SIGSTOP)
try:
    if client == "aio":
        code = asyncio.run(main())
    else:
        at_it = threading.Thread(target=put)
        at_it.start()
        while not lock.locked():
            time.sleep(0.01)
        code = forked()
        at_it.join()
finally:
    os.kill(daemon, signal.SIGCONT)
sys.exit(code)
"""


@each_client
def test_a_child_puts_while_its_parent_does(kept_by: DaemonProcess, client: str) -> None:
    command = [sys.executable, "-c", FORKED, kept_by.socket_path, client, str(kept_by.process.pid)]
    done = subprocess.run(command, env=environment(), check=False, timeout=120)
    assert done.returncode == 0
    saver = WalldSaver(kept_by.reader)
    config: Any = {"configurable": {"thread_id": f"forked {client}"}}
    assert len(list(saver.list(config))) == 2
