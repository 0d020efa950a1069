"""OpenAI Chat: a hook of the HTTP client records every answer that is streamed."""

import os

import openai
import walld_client
from walld_client.adapters.httpx2 import response_hook

walld = walld_client.connect()
unsaved: list[str] = []
hook = response_hook(walld, "chat-1", on_reply=unsaved.append)
client = openai.OpenAI(http_client=openai.DefaultHttpxClient(event_hooks={"response": [hook]}))

stream = client.chat.completions.create(
    model=os.environ.get("MODEL", "gpt-5"),
    messages=[{"role": "user", "content": "Tell me a story."}],
    stream=True,
)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
print(text)  # save your own copy here, durably
for stream_id in unsaved:
    walld.release(stream_id)  # only now may walld forget it
