"""A graph with walld as its checkpointer and its callback: a node that plans, one that speaks.

Spec: base (URL), socket, thread, model, colour (sync | async), client (sync | aio), what (run: from
a question on; resume: from the last checkpoint on; look: the state as it is).
"""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import walld_client
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from walld_client import aio
from walld_client.adapters.langchain import WalldCallback
from walld_client.adapters.langgraph import WalldSaver

DURABLE: Any = "sync"
"""LangGraph's default starts a node beside the checkpoint before it: which is on disk is luck."""


class State(TypedDict, total=False):
    question: str
    plan: str
    answer: str


def said(chunk: Any, calls: dict[Any, str], tell: Any) -> None:
    """What a chunk of the model's stream adds."""
    if chunk.text:
        tell("text", chunk.text)
    for call in chunk.tool_call_chunks:
        if call["id"]:
            calls[call["index"]] = call["id"]
            tell("call", call["name"], call["id"])
        if call["args"]:
            tell("arguments", call["args"], calls[call["index"]])


def graph_of(spec: dict[str, Any], saver: WalldSaver, tell: Any) -> Any:
    model = ChatOpenAI(
        model=spec["model"], base_url=spec["base"] + "/v1", api_key="x", max_retries=0
    )

    calls: dict[Any, str] = {}

    def plan(state: State) -> State:
        tell("node", "plan")
        return {"plan": f"a plan for {state['question']}"}

    def speak(state: State) -> State:
        tell("node", "speak")
        text = ""
        for chunk in model.stream(state["plan"]):
            text += chunk.text
            said(chunk, calls, tell)
        return {"answer": text}

    async def aspeak(state: State) -> State:
        tell("node", "speak")
        text = ""
        async for chunk in model.astream(state["plan"]):
            text += chunk.text
            said(chunk, calls, tell)
        return {"answer": text}

    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("speak", aspeak if spec["colour"] == "async" else speak)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "speak")
    builder.add_edge("speak", END)
    return builder.compile(checkpointer=saver)


async def main(spec: dict[str, Any], tell: Any) -> None:
    is_aio = spec["client"] == "aio"
    walld: Any = (aio if is_aio else walld_client).connect(spec["socket"])
    saver = WalldSaver(walld)
    callback = WalldCallback(walld, saver.session_id(spec["thread"]))
    graph = graph_of(spec, saver, tell)
    config: Any = {"configurable": {"thread_id": spec["thread"]}, "callbacks": [callback]}
    question = {"question": "a log"} if spec["what"] == "run" else None
    try:
        if spec["what"] == "look":
            state = await graph.aget_state(config) if is_aio else graph.get_state(config)
            tell("state", state.values, state.next)
            tell("tasks", [one.id for one in state.tasks])
        elif spec["colour"] == "async":
            tell("values", await graph.ainvoke(question, config, durability=DURABLE))
        else:
            tell("values", graph.invoke(question, config, durability=DURABLE))
    except Exception as error:
        tell("raised", type(error).__name__, str(error))


def run(spec: dict[str, Any], tell: Any) -> None:
    asyncio.run(main(spec, tell))
