"""A stream in hand: the reply is yours, tee says what came."""

import os

import openai
import walld_client
from walld_client.adapters import tee

walld = walld_client.connect()
client = openai.OpenAI()

with walld.reply("chat-1") as reply:
    stream = client.chat.completions.create(
        model=os.environ.get("MODEL", "gpt-5"),
        messages=[{"role": "user", "content": "Tell me a story."}],
        stream=True,
    )
    parts = [one.choices[0].delta.content or "" for one in tee(stream, reply) if one.choices]
    print("".join(parts))  # save your own copy here, durably
    reply.end()  # only now may walld forget it
