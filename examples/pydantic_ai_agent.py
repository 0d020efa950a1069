"""Pydantic AI: a capability records the model's answers and what the tools gave back."""

import os

import walld_client
from pydantic_ai import Agent
from walld_client.adapters.pydantic_ai import WalldCapability

walld = walld_client.connect()
unsaved: list[str] = []
# Without stream_runs the requests of run_sync() come whole, and are recorded whole.
capability = WalldCapability(walld, "chat-1", on_reply=unsaved.append, stream_runs=True)
agent = Agent("openai-chat:" + os.environ.get("MODEL", "gpt-5"), capabilities=[capability])


@agent.tool_plain
def weather(city: str) -> str:
    """The weather of a city."""
    return f"4 degrees in {city}"


print(agent.run_sync("What is the weather?").output)  # save your own copy here, durably
for stream_id in unsaved:
    walld.release(stream_id)  # only now may walld forget it
