"""`python -m adapters.overhead GROUP`: what an adapter adds to a chunk of its SDK.

In the venv of a group, against a daemon of its own: the SDK's own objects, 4,000 of a kind back to
back into one reply, then 500 that come 2 ms apart, as a model streams, when no cache is warm. What
is timed is what walld does with one before the program sees it; the SDK's own work is not in it.
Prints p50 and p99 in microseconds.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import walld_client
from daemon_process import DaemonProcess

BACK_TO_BACK = 4000
PACED = 500
CHUNKS = BACK_TO_BACK + PACED
PACE_SECONDS = 0.002
Take = Callable[[Any], object]


def show(name: str, chunks: list[Any], take: Take) -> None:
    """The first chunk opens the reply, and is not timed."""
    take(chunks[0])
    for how, of, pace_seconds in (
        ("", chunks[1:-PACED], 0.0),
        (", 2 ms apart", chunks[-PACED:], PACE_SECONDS),
    ):
        took = timed(of, take, pace_seconds)
        p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
        print(f"  {name + how:54} p50 {p50:5.1f} us  p99 {p99:6.1f} us", flush=True)


def timed(chunks: list[Any], take: Take, pace_seconds: float) -> list[float]:
    """Microseconds of each, sorted."""
    clock = time.perf_counter
    took = []
    for chunk in chunks:
        if pace_seconds:
            time.sleep(pace_seconds)
        begun = clock()
        take(chunk)
        took.append(1e6 * (clock() - begun))
    return sorted(took)


def langchain(walld: walld_client.Client) -> None:
    messages, outputs = map(
        importlib.import_module, ("langchain_core.messages", "langchain_core.outputs")
    )
    adapter = importlib.import_module("walld_client.adapters.langchain")
    callback = adapter.WalldCallback(walld, "bench")
    anthropic = {"model_provider": "anthropic"}

    def text(at: int) -> Any:
        return messages.AIMessageChunk(content=f" w{at}")

    def part(at: int) -> Any:
        content: Any = [{"type": "text", "text": f" w{at}", "index": 0}]
        return messages.AIMessageChunk(content=content, response_metadata=anthropic)

    def call(at: int) -> Any:
        chunk = {"name": None if at else "f", "args": "x", "id": None if at else "a", "index": 0}
        return messages.AIMessageChunk(content="", tool_call_chunks=[chunk])

    def block(at: int) -> Any:
        begun: Any = {"type": "tool_use", "id": "a", "name": "f", "input": {}, "index": 0}
        more: Any = {"type": "input_json_delta", "partial_json": "x", "index": 0}
        chunks = call(at).tool_call_chunks
        return messages.AIMessageChunk(
            content=[more if at else begun], tool_call_chunks=chunks, response_metadata=anthropic
        )

    kinds = {
        "text": text,
        "text in a list (Anthropic)": part,
        "arguments": call,
        "arguments in a list (Anthropic)": block,
    }
    for name, make in kinds.items():
        run = uuid.uuid4()
        callback.on_chat_model_start({}, [], run_id=run)
        made = [outputs.ChatGenerationChunk(message=make(at)) for at in range(CHUNKS)]

        def take(chunk: Any, run: Any = run) -> None:
            callback.on_llm_new_token(chunk.text, chunk=chunk, run_id=run)

        show(f"LangChain, {name}", made, take)
        callback.on_llm_error(RuntimeError(), run_id=run)


def pydantic_ai(walld: walld_client.Client) -> None:
    adapter, said = map(
        importlib.import_module, ("walld_client.adapters.pydantic_ai", "pydantic_ai.messages")
    )
    first = {"text": said.TextPart("a"), "arguments": said.ToolCallPart("f", "{", "a")}
    deltas = {
        "text": lambda: said.TextPartDelta(content_delta=" word"),
        "arguments": lambda: said.ToolCallPartDelta(args_delta="x"),
    }
    for name, make in deltas.items():
        run = asyncio.run(adapter.WalldCapability(walld, "bench").for_run(None))
        run._begin(None, SimpleNamespace(model=None, messages=[]))
        begun = said.PartStartEvent(index=0, part=first[name])
        events = [begun, *(said.PartDeltaEvent(index=0, delta=make()) for _ in range(CHUNKS))]
        show(f"Pydantic AI, {name}", events, lambda one, run=run: run._event(one, False))
        run._broke(RuntimeError())


def openai_agents(walld: walld_client.Client) -> None:
    adapter, said = map(
        importlib.import_module, ("walld_client.adapters.openai_agents", "openai.types.responses")
    )
    events = importlib.import_module("agents.stream_events")
    at = {"item_id": "i", "output_index": 0, "sequence_number": 1}
    text = said.ResponseTextDeltaEvent(
        **at, content_index=0, delta=" word", logprobs=[], type="response.output_text.delta"
    )
    item = said.ResponseFunctionToolCall(call_id="a", name="f", arguments="", type="function_call")
    added = said.ResponseOutputItemAddedEvent(
        output_index=0, sequence_number=1, item=item, type="response.output_item.added"
    )
    arguments = said.ResponseFunctionCallArgumentsDeltaEvent(
        **at, delta="x", type="response.function_call_arguments.delta"
    )
    for name, chunks in {
        "text": [text] * CHUNKS,
        "arguments": [added, *[arguments] * CHUNKS],
    }.items():
        context = importlib.import_module("agents").RunContextWrapper(None)
        run = adapter.WalldHooks(walld, "bench")._run_of(context)
        made = [events.RawResponsesStreamEvent(data=one) for one in chunks]
        show(f"OpenAI Agents, {name}", made, run._event)
        run._broke(RuntimeError())


def chat_chunks(made: Callable[..., Any]) -> dict[str, list[Any]]:
    """Text, and the arguments of a call, in the objects of an SDK."""

    def one(delta: dict[str, Any]) -> Any:
        about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return made(**about, choices=[{"index": 0, "delta": delta, "finish_reason": None}])

    def call(**function: str) -> dict[str, Any]:
        about = {"index": 0, "id": "a" if "name" in function else None, "type": "function"}
        return {"tool_calls": [{**about, "function": function}]}

    begun = one(call(name="f", arguments=""))
    return {
        "text": [one({"content": f" w{at}"}) for at in range(CHUNKS)],
        "arguments": [begun, *(one(call(arguments="x")) for _ in range(CHUNKS))],
    }


def teed(walld: walld_client.Client, who: str, tee: Any, kinds: dict[str, list[Any]]) -> None:
    for name, chunks in kinds.items():
        reply = walld.reply("bench")
        stream = tee([], reply)
        show(f"{who}, {name}", chunks, stream._hear)
        assert reply.sent_seq >= CHUNKS - 1, "they were to be recorded"
        reply.cancel()


def litellm(walld: walld_client.Client) -> None:
    made = importlib.import_module("litellm.types.utils").ModelResponseStream
    adapter = importlib.import_module("walld_client.adapters.litellm")
    teed(walld, "LiteLLM, tee", adapter.tee, chat_chunks(made))


def openai_anthropic(walld: walld_client.Client) -> None:
    tee = importlib.import_module("walld_client.adapters").tee
    made = importlib.import_module("openai.types.chat").ChatCompletionChunk
    teed(walld, "OpenAI Chat, tee", tee, chat_chunks(lambda **one: made.model_validate(one)))
    models, types = map(importlib.import_module, ("anthropic._models", "anthropic.types"))

    def event(**value: Any) -> Any:
        return models.construct_type(type_=types.RawMessageStreamEvent, value=value)

    def delta(**value: Any) -> Any:
        return event(type="content_block_delta", index=0, delta=value)

    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    begun = event(type="content_block_start", index=0, content_block=block)
    more = [delta(type="input_json_delta", partial_json="x") for _ in range(CHUNKS)]
    text = [delta(type="text_delta", text=f" w{at}") for at in range(CHUNKS)]
    teed(walld, "Anthropic, tee", tee, {"text": text, "arguments": [begun, *more]})


def main() -> None:
    measure = globals()[sys.argv[1].replace("+", "_").replace("-", "_")]
    with tempfile.TemporaryDirectory() as home:
        daemon = DaemonProcess(Path(home)).start()
        try:
            walld = walld_client.connect(daemon.socket_path)
            measure(walld)
            assert walld.stats().dropped == 0, "events were dropped"
            walld.close()
        finally:
            daemon.close()


if __name__ == "__main__":
    main()
