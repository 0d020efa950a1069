"""A callback for LangChain and LangGraph: what models say and what tools give back.

    agent.invoke(..., config={"callbacks": [WalldCallback(walld, "session-1")]})

With `WALLD_LANGCHAIN=session-1` in the environment nothing has to be passed: every model call is
recorded, with a client of the process's own. Where the client is installed its `.pth` file imports
this module then (`startup/walld_langchain_startup.py`); elsewhere the program does.

Owns: LangChain's callbacks to calls on a reply. Refuses: when a reply ends (`model_call.py`).

- Text is taken from `on_llm_new_token` alone; `stream_events(version="v3")` tells it a second time.
- A `token` may be a list, and of Chat models a str beside which the call chunks stand. Both are
  taken as they are where there is nothing else; else the chunk's `content_blocks` have all of it in
  one form, and cost more than sending it does.
- `ChatOpenAI` drops the `reasoning_content` of servers that have it; the httpx2 hook keeps it.
- LangChain ends a stream that was cut without a word as if all were well (`on_llm_end`): it is
  errored here unless some finish reason came. An answer that was not streamed came whole or not.
- The callback runs in the thread, or on the event loop, of the model call (`run_inline`), so that
  what was said is sent before the program sees it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook
from walld_client import client as walld
from walld_client.adapters.model_call import Board, ModelCall, safely
from walld_client.adapters.recording import Opener, SessionId
from walld_client.adapters.wire import Failure, call_name
from walld_client.client import ClientBase

__all__ = ["WalldCallback"]

_VARIABLE = "WALLD_LANGCHAIN"
_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""What providers call it in a message's metadata."""


class WalldCallback(BaseCallbackHandler):
    """Records each model call as a reply, with the results of the tools it asked for.

    session_id: a str, or a callable that is asked at each model call. on_reply: gets the stream id
    of each reply when it begins, for `client.release(stream_id)` once the answer is saved.
    auto_release: the program keeps no copy of its own; a whole answer is forgotten at once.
    Without arguments, a client of this process and the session that WALLD_LANGCHAIN names.
    """

    run_inline = True

    def __init__(
        self,
        client: ClientBase | None = None,
        session_id: SessionId | None = None,
        *,
        on_reply: Callable[[str], object] | None = None,
        auto_release: bool = False,
    ) -> None:
        session = session_id if session_id is not None else os.environ.get(_VARIABLE)
        if session is None:
            raise ValueError(f"a session_id is needed: none was given, and {_VARIABLE} is not set")
        opener = Opener(client or _own_client(), session, on_reply, auto_release)
        self._board = Board(opener)
        self._calls: dict[UUID, ModelCall] = {}
        """Model calls under way."""
        self._indexes: dict[UUID, dict[Any, str]] = {}
        """Call ids by the index that their chunks have."""
        self._tools: dict[UUID, str] = {}
        """Call ids of tools that run."""
        self._roots: dict[UUID, UUID] = {}
        """The outermost run of each chain and tool that runs."""

    # --- models ---

    @safely
    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, **about: Any
    ) -> None:
        """A chat model is asked."""
        self._begin(run_id, **about)

    @safely
    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **about: Any) -> None:
        """A model without roles is asked."""
        self._begin(run_id, **about)

    def _begin(
        self,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        run = None if parent_run_id is None else self._roots.get(parent_run_id, parent_run_id)
        model = (metadata or {}).get("ls_model_name")
        self._calls[run_id] = self._board.begin(run, run_id=str(run_id), model=model)

    @safely
    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """A piece of the answer."""
        call = self._calls.get(run_id)
        if call is None:
            return
        message = getattr(chunk, "message", None)
        if message is None:
            if token and isinstance(token, str):
                call.token(token)
        elif isinstance(message.content, str) and not message.additional_kwargs:
            if message.content:
                call.token(message.content)
            if chunks := getattr(message, "tool_call_chunks", None):
                indexes = self._indexes.setdefault(run_id, {})
                for one in chunks:
                    _called(one, call, indexes)
        else:
            indexes = self._indexes.setdefault(run_id, {})
            if (arguments := _arguments_alone(message)) and arguments.get("index") in indexes:
                _called(arguments, call, indexes)
                return
            for block in message.content_blocks:
                _said(block, call, indexes)

    @safely
    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """The model is done, or its stream is at an end without having said so."""
        call = self._calls.pop(run_id, None)
        self._indexes.pop(run_id, None)
        if call is None:
            return
        generation = response.generations[0][0]
        message = getattr(generation, "message", None)
        was_streamed = call.has_spoken
        if not was_streamed:
            indexes: dict[Any, str] = {}
            if message is None:
                call.token(generation.text)
            for block in message.content_blocks if message is not None else ():
                _said(block, call, indexes)
        about = {
            **(getattr(message, "response_metadata", None) or {}),
            **(generation.generation_info or {}),
        }
        reason = next((about[name] for name in _REASONS if about.get(name)), None)
        if reason is None and was_streamed:
            call.fail()
            return
        if reason == "failed":
            call.fail(Failure("the response failed", "failed", about.get("error")))
            return
        if reason == "incomplete":
            reason = (about.get("incomplete_details") or {}).get("reason") or reason
        if reason is not None:
            call.finish(str(reason))
        call.done()

    @safely
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """The model call ended in an exception, which the program gets."""
        call = self._calls.pop(run_id, None)
        self._indexes.pop(run_id, None)
        if call is not None:
            call.broke(error)

    # --- tools ---

    @safely
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tool_call_id: str | None = None,
        **_: Any,
    ) -> None:
        """A tool begins to run."""
        self._enter(run_id, parent_run_id)
        if tool_call_id is not None:
            self._tools[run_id] = tool_call_id
            self._board.tool_started(tool_call_id, (serialized or {}).get("name"))

    @safely
    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """A tool has answered."""
        call_id = getattr(output, "tool_call_id", None) or self._tools.get(run_id)
        failed = getattr(output, "status", None) == "error"
        self._board.tool_result(call_id, getattr(output, "content", output), failed=failed)
        self._leave(run_id)

    @safely
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """A tool has failed."""
        text = f"{type(error).__name__}: {error}"
        self._board.tool_result(self._tools.get(run_id), text, failed=True)
        self._leave(run_id)

    # --- runs ---

    @safely
    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **_: Any,
    ) -> None:
        """A chain, a graph or a node begins."""
        self._enter(run_id, parent_run_id)

    @safely
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """It is done; where it is the outermost run, no tool of it answers any more."""
        self._leave(run_id)

    @safely
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """The same."""
        self._leave(run_id)

    def _enter(self, run_id: UUID, parent_run_id: UUID | None) -> None:
        outer = run_id if parent_run_id is None else parent_run_id
        self._roots[run_id] = self._roots.get(outer, outer)

    def _leave(self, run_id: UUID) -> None:
        self._tools.pop(run_id, None)
        if self._roots.pop(run_id, None) == run_id:
            self._board.run_ended(run_id)


def _said(block: Any, call: ModelCall, indexes: dict[Any, str]) -> None:
    """One content block, of a chunk or of a whole message."""
    kind = block.get("type", "")
    if kind == "text":
        if block.get("text"):
            call.token(block["text"])
    elif kind == "reasoning":
        if block.get("reasoning"):
            call.reasoning(block["reasoning"])
    elif kind in ("tool_call", "server_tool_call"):
        about = {"server": True} if kind == "server_tool_call" else {}
        call.tool(call_name(block.get("name")), block.get("args"), call_id=block["id"], **about)
    elif kind == "tool_call_chunk":
        _called(block, call, indexes)
    elif kind == "server_tool_call_chunk":
        _called(block, call, indexes, server=True)
    elif kind == "server_tool_result":
        failed = block.get("status") == "error"
        result = block.get("output")
        call.tool_result(result, call_id=block.get("tool_call_id"), failed=failed, server=True)


def _arguments_alone(message: Any) -> Any:
    """The one call chunk of a message of Anthropic's that holds nothing else."""
    content, chunks = message.content, getattr(message, "tool_call_chunks", None) or []
    if len(content) == len(chunks) == 1 and isinstance(content[0], dict):
        return chunks[0] if content[0].get("type") == "input_json_delta" else None
    return None


def _called(block: Any, call: ModelCall, indexes: dict[Any, str], **about: Any) -> None:
    """A piece of a call; only the first has its id."""
    index, call_id, arguments = block.get("index"), block.get("id"), block.get("args")
    if call_id and indexes.get(index) != call_id:
        indexes[index] = call_id
        call.tool(call_name(block.get("name")), call_id=call_id, **about)
    if arguments and index in indexes:
        call.tool_arguments(arguments, call_id=indexes[index])


# --- attached by the environment -----------------------------------------------------------------

_lock = threading.Lock()
_clients: list[ClientBase] = []


def _own_client() -> ClientBase:
    """One for the whole process: LangChain makes a callback for each outermost run."""
    with _lock:
        if not _clients:
            _clients.append(walld.connect())
        return _clients[0]


_attached: ContextVar[WalldCallback | None] = ContextVar("walld_langchain", default=None)
register_configure_hook(_attached, True, WalldCallback, env_var=_VARIABLE)
