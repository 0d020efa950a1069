"""Any agent of Pydantic AI, with walld and without: the program sees the same, and walld has it.

Tools that answer, raise, ask for a retry or wait for somebody, and structured outputs, by a seed;
the model is `any_agents.py`'s.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import walld_client
from adapters.answers import WIRES
from adapters.any_agents import AnyModel, alike, check
from adapters.trial import wants

wants("pydantic-ai-slim")
anthropic, httpx2, openai, pydantic, pydantic_ai = map(
    importlib.import_module, ("anthropic", "httpx2", "openai", "pydantic", "pydantic_ai")
)
anthropic_models, openai_models, anthropic_providers, openai_providers = map(
    importlib.import_module,
    (
        "pydantic_ai.models.anthropic",
        "pydantic_ai.models.openai",
        "pydantic_ai.providers.anthropic",
        "pydantic_ai.providers.openai",
    ),
)
capability = importlib.import_module("walld_client.adapters.pydantic_ai").WalldCapability

RUNS = 10
TURNS = 4
KINDS = ("plain", "plain", "raising", "retrying", "nothing", "asking")


def model_of(wire: str, http: Any) -> Any:
    about: Any = {"api_key": "x", "http_client": http, "max_retries": 0}
    if wire == "messages":
        sdk = anthropic.AsyncAnthropic(base_url="http://here", **about)
        provider = anthropic_providers.AnthropicProvider(anthropic_client=sdk)
        return anthropic_models.AnthropicModel("m", provider=provider)
    sdk = openai.AsyncOpenAI(base_url="http://here/v1", **about)
    provider = openai_providers.OpenAIProvider(openai_client=sdk)
    made = "OpenAIChatModel" if wire == "chat" else "OpenAIResponsesModel"
    return getattr(openai_models, made)("m", provider=provider)


def tool_of(kind: str, number: int) -> Callable[[str], Any]:
    async def tool(q: str) -> Any:
        for _ in range(number):
            await asyncio.sleep(0)
        if kind == "raising":
            raise ValueError(q)
        if kind == "retrying":
            raise pydantic_ai.ModelRetry(f"no {q}")
        return None if kind == "nothing" else f"plain{number}: {q}"

    tool.__name__ = f"{kind}{number}"
    return tool


def agent_of(wire: str, http: Any, random: Random, capabilities: list[Any]) -> Any:
    output = pydantic.create_model("Output", q=(str, ...))
    outputs = random.choice(([str], [output], [str, output]))
    kinds = random.choices(KINDS, k=random.randint(0, 3))
    waits = [pydantic_ai.DeferredToolRequests] if "asking" in kinds else []
    agent = pydantic_ai.Agent(
        model_of(wire, http),
        output_type=[*outputs, *waits],
        capabilities=capabilities,
        retries=2,
        end_strategy=random.choice(("early", "exhaustive")),
    )
    for number, kind in enumerate(kinds):
        agent.tool_plain(tool_of(kind, number), requires_approval=kind == "asking")
    return agent


async def seen(
    wire: str, what: str, seed: str, capabilities: list[Any]
) -> tuple[Any, AnyModel, dict[str, Any]]:
    """What the program saw, of whom, and the results in its messages by their calls."""
    model, random = AnyModel(wire, seed), Random(seed)
    found: list[Any] = []
    messages: list[Any] = []
    about: dict[str, Any] = {"user_prompt": "hello"}
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(model)) as http:
        agent = agent_of(wire, http, random, capabilities)
        try:
            for _ in range(TURNS):
                done = await run(agent, about, what, found)
                messages = done.all_messages()
                found.append(done.output)
                if not isinstance(done.output, pydantic_ai.DeferredToolRequests):
                    break
                said = {
                    one.tool_call_id: random.random() < 0.6 or pydantic_ai.ToolDenied("no")
                    for one in done.output.approvals
                }
                results = pydantic_ai.DeferredToolResults(approvals=said)
                about = {"message_history": messages, "deferred_tool_results": results}
        except Exception as error:
            found.append((type(error), str(error)))
    parts = [part for one in messages for part in one.parts]
    told = {one.tool_call_id: one.content for one in parts if one.part_kind == "tool-return"}
    asked_anew = {one.tool_call_id: None for one in parts if one.part_kind == "retry-prompt"}
    return (found, model.asked, messages), model, told | asked_anew


async def run(agent: Any, about: dict[str, Any], what: str, found: list[Any]) -> Any:
    async def look(_ctx: Any, events: Any) -> None:
        found.extend([event async for event in events])

    if what == "run":
        return await agent.run(**about)
    if what == "handler":
        return await agent.run(**about, event_stream_handler=look)
    async with agent.iter(**about) as going:
        async for node in going:
            if agent.is_model_request_node(node) or agent.is_call_tools_node(node):
                async with node.stream(going.ctx) as events:
                    await look(None, events)
    return going.result


@pytest.mark.parametrize("what", ["run", "handler", "iter"])
@pytest.mark.parametrize("wire", WIRES)
def test_any_agent(walld: walld_client.Client, wire: str, what: str) -> None:
    for number in range(RUNS):
        seed = f"any {wire} {what} {number}"
        alone, _, _ = asyncio.run(seen(wire, what, seed, []))
        hook = capability(walld, seed)
        found, model, results = asyncio.run(seen(wire, what, seed, [hook]))
        assert alike(found) == alike(alone), seed
        del found
        gc.collect()  # what still holds a run keeps the replies of its calls open
        check(walld.recover_all(seed), model, results)
