"""A program on LiteLLM, with walld's tee around what it returns.

Spec: base (URL), socket, provider (openai | anthropic), model, colour (sync | async), walld (bool),
first (the model whose stream comes before it into the same reply, and is read whole), n (choices),
routed (bool: by a Router), instead (the model that the Router falls back to), stall (bool: behind
the answer it runs its tool, for ever), session, tool_effects.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import litellm
import walld_client
from walld_client.adapters.litellm import tee

litellm.suppress_debug_info = True
MESSAGES = [{"role": "user", "content": "hello"}]
# The first call imports for two seconds; said here, each fork has it.
list(litellm.completion("openai/m", MESSAGES, stream=True, mock_response="hello"))


def said(chunk: Any, tell: Any, ids: dict[int, str]) -> None:
    """What a chunk adds to the answer."""
    delta = chunk.choices[0].delta
    if text := getattr(delta, "reasoning_content", None):
        tell("reasoning", text)
    if delta.content:
        tell("text", delta.content)
    for call in delta.tool_calls or []:
        if call.id:
            ids[call.index] = call.id
            tell("call", call.function.name, call.id)
        if call.function.arguments:
            tell("arguments", call.function.arguments, ids[call.index])


def asked(spec: dict[str, Any], about: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Who is asked, in either colour, and what."""
    if not spec.get("routed"):
        return litellm.completion, litellm.acompletion, about
    where = {name: about[name] for name in ("api_base", "api_key", "max_retries")}
    models = {"m": about["model"], "instead": f"{spec['provider']}/{spec.get('instead')}"}
    listed = [
        {"model_name": name, "litellm_params": {"model": model, **where}}
        for name, model in models.items()
    ]
    router = litellm.Router(model_list=listed, fallbacks=[{"m": ["instead"]}], num_retries=0)
    what = {"model": "m", "messages": MESSAGES, "stream": True}
    return router.completion, router.acompletion, what


def stall(spec: dict[str, Any], tell: Any) -> None:
    """The program runs the tool that it was asked for, and never comes back."""
    if spec.get("stall"):
        tell("running")
        time.sleep(99)


async def main(spec: dict[str, Any], tell: Any) -> None:
    walld = walld_client.connect(spec["socket"])
    about: dict[str, Any] = {"model": f"{spec['provider']}/{spec['model']}", "api_key": "x"}
    about |= {"api_base": spec["base"] + ("/v1" if spec["provider"] == "openai" else "")}
    about |= {"messages": MESSAGES, "stream": True, "max_retries": 0, "num_retries": 0}
    about |= {"n": spec["n"]} if "n" in spec else {}
    completion, acompletion, what = asked(spec, about)
    ids: dict[int, str] = {}
    reply = walld.reply(spec.get("session", "s"), auto_release=False)
    tell("stream", reply.stream_id)
    told = {"tool_effects": spec.get("tool_effects")}
    try:
        with reply:
            if first := spec.get("first"):
                other = about | {"model": f"{spec['provider']}/{first}"}
                with suppress(Exception):
                    if spec["colour"] == "async":
                        async for _ in tee(await litellm.acompletion(**other), reply):
                            pass
                    else:
                        list(tee(litellm.completion(**other), reply))
            if spec["colour"] == "async":
                stream = await acompletion(**what)
                async for chunk in tee(stream, reply, **told) if spec["walld"] else stream:
                    said(chunk, tell, ids)
            else:
                stream = completion(**what)
                for chunk in tee(stream, reply, **told) if spec["walld"] else stream:
                    said(chunk, tell, ids)
            stall(spec, tell)
            reply.end()
        tell("done")
    except Exception as error:
        tell("raised", f"{type(error).__module__}.{type(error).__qualname__}", str(error))


def run(spec: dict[str, Any], tell: Any) -> None:
    asyncio.run(main(spec, tell))
