"""Anthropic: a middleware records every message that is streamed."""

import os

import anthropic
import walld_client
from walld_client.adapters.anthropic import WalldMiddleware

walld = walld_client.connect()
unsaved: list[str] = []
client = anthropic.Anthropic().with_middleware(
    WalldMiddleware(walld, "chat-1", on_reply=unsaved.append)
)

with client.messages.stream(
    model=os.environ.get("MODEL", "claude-sonnet-4-5"),
    max_tokens=1024,
    messages=[{"role": "user", "content": "Tell me a story."}],
) as stream:
    print("".join(stream.text_stream))  # save your own copy here, durably
for stream_id in unsaved:
    walld.release(stream_id)  # only now may walld forget it
