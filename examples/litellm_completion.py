"""LiteLLM: its own tee knows which finish reasons LiteLLM has made up."""

import os

import litellm
import walld_client
from walld_client.adapters.litellm import tee

walld = walld_client.connect()

with walld.reply("chat-1") as reply:
    stream = litellm.completion(
        model="openai/" + os.environ.get("MODEL", "gpt-5"),
        messages=[{"role": "user", "content": "Tell me a story."}],
        stream=True,
    )
    print("".join(one.choices[0].delta.content or "" for one in tee(stream, reply)))  # and save it
    reply.end()  # only now may walld forget it
