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
- Calls are those of `tool_call_chunks` and `tool_calls`, where LangChain puts every provider's, and
  the `function_call` of before there were tools. One without an id gets a name of its own,
  `<run id>:<n>`; what its tool gives back cannot be told from others' and is not recorded.
- LangChain tells a callback that stands twice in a list everything twice, with the same run id: it
  is counted at the start, and each is heard once.
- Results need the callback to see the chain around model and tools, as it does where it is given to
  the run (`config`): a reply whose chain it does not see ends with the model's answer.
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
from walld_client.adapters.model_call import Board, ModelCall, Place, safely
from walld_client.adapters.recording import SessionId
from walld_client.adapters.wire import Failure, call_name
from walld_client.client import ClientBase

__all__ = ["WalldCallback"]

_VARIABLE = "WALLD_LANGCHAIN"
_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""What providers call it in a message's metadata."""


class WalldCallback(BaseCallbackHandler):
    """Records each model call as a reply, with the results of the tools it asked for.

    session_id: a str, or a callable that is asked when a model call begins, in its context.
    on_reply: gets the stream id of each reply when it begins, for `client.release(stream_id)` once
    the answer is saved.
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
        self._board = Board(client or _own_client(), session, on_reply, auto_release)
        self._answers: dict[UUID, _Answer] = {}
        """Model calls under way."""
        self._tools: dict[UUID, str] = {}
        """Call ids of tools that run."""
        self._places: dict[UUID, Place] = {}
        """Where each chain and tool that runs lies, with itself."""

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
        if run_id in self._answers:
            self._answers[run_id].times += 1
            return
        place = self._place_of(parent_run_id)
        model = (metadata or {}).get("ls_model_name")
        call = self._board.begin(*place, run_id=str(run_id), model=model)
        self._answers[run_id] = _Answer(call, run_id)

    @safely
    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """A piece of the answer."""
        answer = self._answers.get(run_id)
        if answer is None or answer.is_heard():
            return
        message = getattr(chunk, "message", None)
        if message is None:
            if token and isinstance(token, str):
                answer.call.token(token)
        elif isinstance(message.content, str) and not message.additional_kwargs:
            if message.content:
                answer.call.token(message.content)
            for one in getattr(message, "tool_call_chunks", None) or ():
                answer.called(one)
        else:
            answer.chunk(message)

    @safely
    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """The model is done, or its stream is at an end without having said so."""
        answer = self._answers.pop(run_id, None)
        if answer is None:
            return
        call = answer.call
        generation = response.generations[0][0]
        message = getattr(generation, "message", None)
        was_streamed = call.has_spoken
        if not was_streamed:
            if message is None:
                call.token(generation.text)
            else:
                answer.whole(message)
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
        answer = self._answers.pop(run_id, None)
        if answer is not None:
            answer.call.broke(error)

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
        place = self._enter(run_id, parent_run_id)
        if tool_call_id is not None and run_id not in self._tools:
            self._tools[run_id] = tool_call_id
            self._board.tool_started(place, tool_call_id, (serialized or {}).get("name"))

    @safely
    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """A tool has answered."""
        call_id = getattr(output, "tool_call_id", None) or self._tools.get(run_id)
        failed = getattr(output, "status", None) == "error"
        self._ended(run_id, call_id, getattr(output, "content", output), failed)

    @safely
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """A tool has failed."""
        text = f"{type(error).__name__}: {error}"
        self._ended(run_id, self._tools.get(run_id), text, True)

    def _ended(self, run_id: UUID, call_id: str | None, result: Any, failed: bool) -> None:
        if (place := self._places.get(run_id)) is not None:
            self._board.tool_result(place, call_id, result, failed=failed)
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

    def _enter(self, run_id: UUID, parent_run_id: UUID | None) -> Place:
        return self._places.setdefault(run_id, (*self._place_of(parent_run_id), run_id))

    def _place_of(self, parent_run_id: UUID | None) -> Place:
        """Empty for a parent that the callback is not told of: nobody would say when it ends."""
        return () if parent_run_id is None else self._places.get(parent_run_id, ())

    def _leave(self, run_id: UUID) -> None:
        self._tools.pop(run_id, None)
        if self._places.pop(run_id, None) == (run_id,):
            self._board.run_ended(run_id)


class _Answer:
    """A model call under way, from LangChain's messages."""

    def __init__(self, call: ModelCall, run_id: UUID) -> None:
        self.call = call
        self.times = 1
        """How often LangChain tells everything: the callback stands so often in its list."""
        self._told = 0
        self._run_id = run_id
        self._ids: dict[Any, str] = {}
        """Call ids by the index that their chunks have."""
        self._calls = 0

    def is_heard(self) -> bool:
        """Is what is told now another telling of what was heard?"""
        if self.times == 1:
            return False
        self._told += 1
        return self._told % self.times != 1

    def chunk(self, message: Any) -> None:
        """A chunk whose content is a list, or that has something beside it."""
        chunks: list[Any] = getattr(message, "tool_call_chunks", None) or []
        if _is_of_arguments_alone(message, chunks) and chunks[0].get("index") in self._ids:
            self.called(chunks[0])
            return
        self._blocks(message.content_blocks, message)
        for one in chunks:
            self.called(one)
        if not chunks:
            self._function(message)

    def whole(self, message: Any) -> None:
        """A message that was not streamed."""
        self._blocks(message.content_blocks, message)
        calls = getattr(message, "tool_calls", None) or []
        unread = getattr(message, "invalid_tool_calls", None) or []
        for one in (*calls, *unread):
            if not one.get("id") or one["id"] not in self.call.waiting:
                self._asked(one)
        if not calls and not unread:
            self._function(message)

    def _blocks(self, blocks: Any, message: Any) -> None:
        is_refused = False
        for block in blocks:
            kind = block.get("type", "")
            if kind == "text":
                if block.get("text"):
                    self.call.token(block["text"])
            elif kind == "reasoning":
                if block.get("reasoning"):
                    self.call.reasoning(block["reasoning"])
            elif kind in ("tool_call", "invalid_tool_call"):
                # Of a chunk they stand among its chunks of calls too; without an id they are left.
                if block.get("id") and not getattr(message, "tool_call_chunks", None):
                    self._asked(block)
            elif kind == "server_tool_call":
                name = call_name(block.get("name"))
                self.call.tool(name, block.get("args"), call_id=block["id"], server=True)
            elif kind == "server_tool_call_chunk":
                self.called(block, server=True)
            elif kind == "server_tool_result":
                failed, result = block.get("status") == "error", block.get("output")
                call_id = block.get("tool_call_id")
                self.call.tool_result(result, call_id=call_id, failed=failed, server=True)
            elif refusal := _refusal_of(block):
                is_refused = True
                self.call.token(refusal, refusal=True)
        refusal = message.additional_kwargs.get("refusal")
        if refusal and not is_refused:
            self.call.token(refusal, refusal=True)

    def called(self, chunk: Any, **about: Any) -> None:
        """A piece of a call; only the first has its id, or none has."""
        index, call_id, arguments = chunk.get("index"), chunk.get("id"), chunk.get("args")
        known = self._ids.get(index)
        is_another = known is None or (index is None and chunk.get("name"))
        if call_id != known if call_id else is_another:
            self._ids[index] = known = call_id or self._made_id()
            self.call.tool(call_name(chunk.get("name")), call_id=known, **about)
        if arguments and known is not None:
            self.call.tool_arguments(arguments, call_id=known)

    def _asked(self, block: Any) -> None:
        """A call that came whole; of one that LangChain could not read, the arguments as text."""
        arguments, call_id = block.get("args"), block.get("id") or self._made_id()
        is_read = not isinstance(arguments, str)
        self.call.tool(
            call_name(block.get("name")), arguments if is_read else None, call_id=call_id
        )
        if arguments and not is_read:
            self.call.tool_arguments(arguments, call_id=call_id)

    def _function(self, message: Any) -> None:
        """The one `function_call` of before there were tools."""
        function = message.additional_kwargs.get("function_call")
        if function:
            name, arguments = function.get("name"), function.get("arguments")
            self.called({"index": "function_call", "name": name, "args": arguments})

    def _made_id(self) -> str:
        self._calls += 1
        return f"{self._run_id}:{self._calls}"


def _is_of_arguments_alone(message: Any, chunks: Any) -> bool:
    """Does a message of Anthropic's hold one call chunk and nothing else?"""
    content = message.content
    if len(content) == len(chunks) == 1 and isinstance(content[0], dict):
        return bool(content[0].get("type") == "input_json_delta")
    return False


def _refusal_of(block: Any) -> str | None:
    """The refusal of a block of OpenAI Responses: LangChain has no kind of its own for it."""
    said = block.get("value") if block.get("type") == "non_standard" else block
    if isinstance(said, dict) and said.get("type") == "refusal":
        return said.get("refusal") or None
    return None


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
