"""Any agent of OpenAI Agents, with walld and without: the program sees the same, and walld has it.

Tools that answer, raise, or ask first, and handoffs, by a seed; the model is `any_agents.py`'s.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
from random import Random
from typing import Any

import pytest
import walld_client
from adapters.any_agents import AnyModel, alike, check
from adapters.trial import wants

wants("openai-agents")
agents, httpx2, openai = map(importlib.import_module, ("agents", "httpx2", "openai"))
hooks_of = importlib.import_module("walld_client.adapters.openai_agents").WalldHooks
agents.set_tracing_disabled(True)

RUNS = 15
TURNS = 4
RESULTS = ("tool_call_output_item", "handoff_output_item")


def tool_of(kind: str, number: int, *, asks: bool) -> Any:
    async def plain(q: str) -> str:
        for _ in range(number):
            await asyncio.sleep(0)
        return f"plain{number}: {q}"

    async def raising(q: str) -> str:
        raise ValueError(q)

    async def nothing(q: str) -> None:
        return None

    made = {"plain": plain, "raising": raising, "nothing": nothing}[kind]
    return agents.function_tool(made, name_override=f"{kind}{number}", needs_approval=asks)


def agent_of(wire: str, model: AnyModel, http: Any, random: Random) -> Any:
    about: Any = {"api_key": "x", "base_url": "http://here/v1", "max_retries": 0}
    sdk = openai.AsyncOpenAI(http_client=http, **about)
    made = agents.OpenAIChatCompletionsModel if wire == "chat" else agents.OpenAIResponsesModel

    def one(name: str, others: list[Any]) -> Any:
        kinds = random.choices(("plain", "plain", "raising", "nothing"), k=random.randint(0, 3))
        tools = [tool_of(kind, at, asks=random.random() < 0.2) for at, kind in enumerate(kinds)]
        settings = agents.ModelSettings(include_usage=True)
        about = {"model": made("m", sdk), "tools": tools, "model_settings": settings}
        return agents.Agent(name=name, handoffs=others, **about)

    last = one("last", [])
    return one("first", [last] if random.random() < 0.6 else [])


async def seen(wire: str, what: str, seed: str, hooks: Any) -> tuple[Any, AnyModel, dict[str, Any]]:
    """What the program saw, of whom, and the results in its items by their calls."""
    model, random = AnyModel(wire, seed), Random(seed)
    found: list[Any] = []
    items: list[Any] = []
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(model)) as http:
        agent, said = agent_of(wire, model, http, random), "hello"
        try:
            for _ in range(TURNS):
                result = await run(agent, said, what, hooks, found)
                items = result.new_items
                found.append(result.final_output)
                if not result.interruptions:
                    break
                said = result.to_state()
                for one in said.get_interruptions():
                    (said.approve if random.random() < 0.6 else said.reject)(one)
        except Exception as error:
            found.append((type(error), str(error)))
    found.append([one.raw_item for one in items])
    told = [one for one in items if one.type in RESULTS]
    results = {one.raw_item["call_id"]: getattr(one, "output", None) for one in told}
    return (found, model.asked), model, results


async def run(agent: Any, said: Any, what: str, hooks: Any, found: list[Any]) -> Any:
    about: Any = {"hooks": hooks, "max_turns": 8}
    if what == "run":
        return await agents.Runner.run(agent, said, **about)
    result = agents.Runner.run_streamed(agent, said, **about)
    is_teed = what == "tee" and hooks is not None
    async for event in hooks.tee(result) if is_teed else result.stream_events():
        if event.type == "raw_response_event":
            found.append(event.data.model_dump(warnings=False))
        else:
            found.append((event.type, getattr(event, "name", None)))
    return result


@pytest.mark.parametrize("what", ["run", "tee"])
@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_any_agent(walld: walld_client.Client, wire: str, what: str) -> None:
    for number in range(RUNS):
        seed = f"{wire} {what} {number}"
        alone, _, _ = asyncio.run(seen(wire, what, seed, None))
        found, model, results = asyncio.run(seen(wire, what, seed, hooks_of(walld, seed)))
        assert alike(found) == alike(alone), seed
        del found
        gc.collect()  # what still holds a run keeps the replies of its calls open
        check(walld.recover_all(seed), model, results)
