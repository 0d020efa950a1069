"""OpenAI Responses in an asyncio program: the same hook, of the asynchronous client."""

import asyncio
import os

import openai
from walld_client import aio
from walld_client.adapters.httpx2 import async_response_hook


async def main() -> None:
    walld = aio.connect()
    unsaved: list[str] = []
    hook = async_response_hook(walld, "chat-1", on_reply=unsaved.append)
    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [hook]})
    client = openai.AsyncOpenAI(http_client=http)
    model = os.environ.get("MODEL", "gpt-5")
    stream = await client.responses.create(model=model, input="Tell me a story.", stream=True)
    parts = [one.delta async for one in stream if one.type == "response.output_text.delta"]
    print("".join(parts))  # save your own copy here, durably
    for stream_id in unsaved:
        walld.release(stream_id)  # only now may walld forget it
    await walld.close()


asyncio.run(main())
