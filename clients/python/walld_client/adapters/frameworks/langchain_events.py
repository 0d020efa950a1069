"""The same model call from protocol events, what `stream_events(version="v3")` hands on.

Owns: what an event adds to a reply, and that what both tell is in it once. Refuses: messages
(`langchain_chunks.py`).

An answer that is asked for so, by the program or by an agent that is, is told in events, each
before the program has it, and many of it in chunks too (`on_llm_new_token`): OpenAI's all, of
Anthropic's those whose content is a str. So events are what is recorded from the first that says
something on, and the chunk just before it, which it repeats, is remembered for that. Chunks are
asked then for what no event has before the message is done: refusals, and the `function_call` of
before there were tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from walld_client.adapters.frameworks.langchain_chunks import Chunks, refusal_of
from walld_client.adapters.frameworks.model_call import ModelCall
from walld_client.adapters.wires.wire import call_name

__all__ = ["Answer"]

_ADDS = {
    "text-delta": "text",
    "text": "text",
    "reasoning-delta": "reasoning",
    "reasoning": "reasoning",
    "tool-call-delta": "args",
    "tool_call_chunk": "args",
    "server_tool_call_chunk": "args",
}
"""What deltas and blocks that come in pieces have their piece in."""
_MODELS = "langchain_core.language_models."
_CALLS = ("tool_call", "invalid_tool_call", "tool_call_chunk", "server_tool_call_chunk")


class _Block:
    """A block that has begun."""

    def __init__(self) -> None:
        self.length = 0
        """Of what its pieces had."""
        self.call_id: str | None = None
        self.is_whole = False
        """A call that does not come in pieces, or that a chunk has told."""


class Answer(Chunks):
    """A model call under way, from chunks until an event says something, then from events."""

    def __init__(self, call: ModelCall, run_id: str) -> None:
        super().__init__(call, run_id)
        self.times = 1
        """How often LangChain tells everything: the callback stands so often in its list."""
        self._tellings = 0
        self.is_watched = False
        self._task: ref[asyncio.Task[Any]] | None = None
        self._on_done: Callable[[asyncio.Task[Any]], None] | None = None
        self._last: Any = None
        """The chunk that was told last, until events are heard."""
        self._ahead: list[tuple[str, str]] | None = None
        """What a chunk has told and events are to repeat; None: no event has said anything yet."""
        self._told: set[str] = set()
        """Calls that chunks have told."""
        self._to_repeat: list[str] = []
        """Those of them that events are still to tell again."""
        self._told_by_index: dict[Any, str] = {}
        """The same, of the chunk that events are to repeat."""
        self._blocks_by_index: dict[Any, _Block] = {}

    def watch(self) -> None:
        """Of a cancel in `ainvoke` LangChain tells nobody: the task it made for the answer does.

        Of one in a stream it tells; and a task of the program's may end without the stream, which
        another one reads on.
        """
        self.is_watched = True
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop in this thread
            return
        if task is not None and _is_for_an_answer(task):
            # Weak on both sides: neither keeps the other, nor LangChain's run.
            self._task, self._on_done = ref(task), partial(_task_ended, ref(self))
            task.add_done_callback(self._on_done)

    def unwatch(self) -> None:
        """Its end is known."""
        task = self._task() if self._task is not None else None
        if task is not None and self._on_done is not None:
            task.remove_done_callback(self._on_done)

    @property
    def was_streamed(self) -> bool:
        """Has something of it come before its end?"""
        return self.call.has_spoken or self._ahead is not None

    def is_heard(self) -> bool:
        """Is what is told now another telling of what was heard?"""
        if self.times == 1:
            return False
        self._tellings += 1
        return self._tellings % self.times != 1

    def told(self, message: Any) -> None:
        """The next chunk."""
        is_text = isinstance(message.content, str)
        if self._ahead is not None:
            self._ahead.clear()
            self._told_by_index.clear()
            self._refused(() if is_text else message.content, message.additional_kwargs)
            self._function(message.additional_kwargs)
            return
        self._last = message
        if is_text and not message.additional_kwargs:
            self.text(message)
        else:
            self.chunk(message)

    def event(self, event: Any) -> None:
        """The next event."""
        kind, index = event.get("event"), event.get("index")
        what = event.get("delta" if kind == "content-block-delta" else "content")
        if kind == "message-finish":
            self._finished(event.get("additional_kwargs") or {})
        elif isinstance(what, dict):
            if self._ahead is None:
                self._turn_to_events()
            if kind == "content-block-start":
                self._begin(index, what)
            elif kind == "content-block-delta":
                self._delta(index, what)
            elif kind == "content-block-finish":
                self._finish(index, what)

    def _turn_to_events(self) -> None:
        blocks = () if self._last is None else self._last.content_blocks
        pieces = ((_ADDS.get(one.get("type", "")), one) for one in blocks)
        self._ahead = [(what, one[what]) for what, one in pieces if what and one.get(what)]
        self._told.update(self._ids.values(), self.call.waiting)
        self._to_repeat = [*dict.fromkeys((*self.call.waiting, *self._ids.values()))]
        self._told_by_index = dict(self._ids)
        self._last = None

    # --- blocks ---

    def _begin(self, index: Any, content: Any) -> None:
        block = self._blocks_by_index[index] = _Block()
        if content.get("type") in _CALLS:
            self._begin_call(block, content)

    def _begin_call(self, block: _Block, content: Any) -> None:
        """A call, of which the first event has id and name."""
        kind = content["type"]
        block.call_id = self._told_before(content.get("id"), content.get("index"))
        is_told = block.call_id is not None
        block.is_whole = is_told or not kind.endswith("_chunk")
        if not is_told:
            about = {"server": True} if kind.startswith("server") else {}
            block.call_id = self._begun(content.get("id"), content.get("name"), **about)
            if kind.endswith("_chunk"):
                self._add(block, "args", content.get("args"))

    def _told_before(self, given: Any, index: Any) -> str | None:
        """The call that a chunk has told and an event tells again, each once."""
        own = self._told_by_index.pop(index, None)
        if own is None or (given and self._given.get(own, given) != given):
            its = (one for one in self._to_repeat if given and self._given.get(one) == given)
            own = next(its, None)
        if own in self._to_repeat:
            self._to_repeat.remove(own)
        return own

    def _delta(self, index: Any, delta: Any) -> None:
        block = self._blocks_by_index.setdefault(index, _Block())
        kind = delta.get("type", "")
        if kind in _ADDS:
            self._add(block, _ADDS[kind], delta.get(_ADDS[kind]))
        elif kind == "block-delta":  # of older cores: of a call all arguments so far
            fields = delta.get("fields") or {}
            if fields.get("type") in _CALLS:
                if block.call_id is None:
                    self._begin_call(block, {**fields, "args": None})
                self._add(block, "args", (fields.get("args") or "")[block.length :])

    def _add(self, block: _Block, what: str, piece: Any) -> None:
        """A piece of a block, unless a chunk has just told it."""
        if not piece or not isinstance(piece, str):
            return
        block.length += len(piece)
        if self._ahead and (what, piece) in self._ahead:
            self._ahead.remove((what, piece))
        elif what == "text":
            self.call.token(piece)
        elif what == "reasoning":
            self.call.reasoning(piece)
        elif block.call_id is not None:
            self.call.tool_arguments(piece, call_id=block.call_id)

    def _finish(self, index: Any, content: Any) -> None:
        """A block is whole: what its pieces did not have is said now."""
        block = self._blocks_by_index.pop(index, None) or _Block()
        kind = content.get("type", "")
        if kind in ("text", "reasoning"):
            self._add(block, kind, (content.get(kind) or "")[block.length :])
            self._signed(content)
        elif block.call_id is not None or kind in _CALLS:
            self._finish_call(block, content)
        elif refusal_of(content):
            if not self._has_refused:
                self._refused((content,), {})
        elif custom := _custom_call(content):
            if self._told_before(custom["id"], None) is None:
                self._asked(custom)
        else:
            self._served(content)

    def _finish_call(self, block: _Block, content: Any) -> None:
        if block.call_id is None:
            self._begin_call(block, {**content, "args": None})
        call_id, arguments, name = block.call_id, content.get("args"), content.get("name")
        if call_id is None:
            return
        if call_id in self._names:
            about = {"server": True} if content.get("type", "").startswith("server") else {}
            self._told_again(call_id, content.get("id"), name, **about)
        if call_id in self._told:
            return
        if isinstance(arguments, str):
            self._add(block, "args", arguments[block.length :])
        elif not block.length and (arguments or block.is_whole):
            self.call.tool(
                self._names.get(call_id) or call_name(name), arguments or {}, call_id=call_id
            )

    def _finished(self, beside: dict[str, Any]) -> None:
        if self._ahead is None:
            return
        if not self._has_refused:
            self._refused((), beside)
        if "function_call" not in self._ids:
            self._function(beside)


def _is_for_an_answer(task: asyncio.Task[Any]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    module = "" if frame is None else frame.f_globals.get("__name__")
    return str(module).startswith(_MODELS)


def _task_ended(answer: ref[Answer], task: asyncio.Task[Any]) -> None:
    left = answer() if task.cancelled() else None
    if left is not None and not left.call.is_over:
        left.call.broke(asyncio.CancelledError())


def _custom_call(block: Any) -> dict[str, Any] | None:
    """The call of a custom tool of OpenAI Responses, as chunks have it; of events it is none."""
    value = block.get("value")
    if not isinstance(value, dict) or value.get("type") != "custom_tool_call":
        return None
    arguments = {"__arg1": value.get("input")}
    return {"id": value.get("call_id"), "name": value.get("name"), "args": arguments}
