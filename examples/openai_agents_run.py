"""OpenAI Agents: hooks and a tee record the model's answers and what the tools gave back."""

import asyncio
import os

import walld_client
from agents import Agent, Runner, function_tool
from walld_client.adapters.openai_agents import WalldHooks


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city}"


async def main() -> None:
    walld, unsaved = walld_client.connect(), list[str]()
    hooks = WalldHooks(walld, "chat-1", on_reply=unsaved.append)
    agent = Agent(name="weatherman", model=os.environ.get("MODEL", "gpt-5"), tools=[weather])
    result = Runner.run_streamed(agent, "What is the weather?", hooks=hooks)
    _events = [event async for event in hooks.tee(result)]
    print(result.final_output)  # save your own copy here, durably
    for stream_id in unsaved:
        walld.release(stream_id)  # only now may walld forget it


asyncio.run(main())
