"""A callback for LangChain and LangGraph: what models say and what tools give back.

    agent.invoke(..., config={"callbacks": [WalldCallback(walld, "session-1")]})

With `WALLD_LANGCHAIN=session-1` in the environment nothing has to be passed: every model call is
recorded, with a client of the process's own, and what WALLD_LANGCHAIN_TOOL_EFFECTS declares of the
tools. Where the client is installed its `.pth` file imports
this module then (`startup/walld_langchain_startup.py`); elsewhere the program does.

Owns: LangChain's callbacks to calls on a reply. Refuses: when a reply ends (`model_call.py`).

- `stream_events(version="v3")`, of a model and of an agent, tells in events (`on_stream_event`),
  and a part of it in chunks as well: it is recorded once (`langchain_events.py`).
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
- A tool that LangGraph interrupts has not failed: its call stays open, as those do that wait for
  LangChain's HumanInTheLoopMiddleware, and another run may go on with them
  (`langchain_interrupts.py`). Of a tool that gives back a `Command` the result is what its message
  tells the model.
- LangChain ends a stream that was cut without a word as if all were well (`on_llm_end`): it is
  errored here unless some finish reason came, `error` of Chat being none. An answer that was not
  streamed came whole or not.
- Of an answer in events the last one (`message-finish`) has that reason, and ends it: `on_llm_end`
  comes when an asynchronous program has all of them.
- In a graph of LangGraph's a reply's meta has the `node` and the `task` that it is of, and
  `checkpoint_ns`, the path to the task; a saver of walld's in this process releases it once it has
  what its tasks gave (`langgraph_tasks.py`).
- The callback runs in the thread, or on the event loop, of the model call (`run_inline`), so that
  what was said is sent before the program sees it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from walld_client import client as walld
from walld_client.adapters.frameworks import langchain_interrupts as interrupts
from walld_client.adapters.frameworks import langgraph_tasks as tasks
from walld_client.adapters.frameworks.extras import needs
from walld_client.adapters.frameworks.langchain_events import Answer
from walld_client.adapters.frameworks.model_call import Board, ModelCall, Place, safely
from walld_client.adapters.frameworks.recording import Opener, SessionId
from walld_client.adapters.frameworks.tool_effects import Declared, ToolEffects
from walld_client.adapters.wires.model_said import hash_of_tools
from walld_client.adapters.wires.wire import Failure, finish_failure
from walld_client.client import ClientBase
from walld_client.link import process
from walld_client.reply.reply import ReplyBase

with needs("langchain", "langchain_core"):
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.tracers.context import register_configure_hook

__all__ = ["WalldCallback"]

_VARIABLE = "WALLD_LANGCHAIN"
_EFFECTS_VARIABLE = "WALLD_LANGCHAIN_TOOL_EFFECTS"
_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""What providers call it in a message's metadata."""
_TASK = "langgraph_checkpoint_ns"
"""In the metadata of a node: its task, the same in the run that goes on with it."""


_log = logging.getLogger("walld")


class _OpenerOfTasks(Opener):
    """Savers know the replies that it opens by their tasks."""

    def open_in(self, session_id: str, **meta: Any) -> ReplyBase | None:
        reply = super().open_in(session_id, **meta)
        if reply is not None and "checkpoint_ns" in meta:
            tasks.spoken(reply, meta["checkpoint_ns"])
        return reply


class WalldCallback(BaseCallbackHandler):
    """Records each model call as a reply, with the results of the tools it asked for.

    session_id: a str, or a callable that is asked when a model call begins, in its context.
    on_reply: gets the stream id of each reply when it begins, for `client.release(stream_id)` once
    the answer is saved.
    auto_release: the program keeps no copy of its own; a whole answer is forgotten at once.
    tool_effects: of tools by name, (side_effect, resume_policy) as `turn.intent` has them: what the
    gate judges a call by that has no result.
    Without arguments, a client of this process, the session that WALLD_LANGCHAIN names, and the
    tool_effects that WALLD_LANGCHAIN_TOOL_EFFECTS has, as JSON. What is wrong there is an error in
    the log, and no tool is declared.
    """

    run_inline = True

    def __init__(
        self,
        client: ClientBase | None = None,
        session_id: SessionId | None = None,
        *,
        on_reply: Callable[[str], object] | None = None,
        auto_release: bool = False,
        tool_effects: Declared | None = None,
    ) -> None:
        session = session_id if session_id is not None else os.environ.get(_VARIABLE)
        if session is None:
            raise ValueError(f"a session_id is needed: none was given, and {_VARIABLE} is not set")
        if session_id is None and tool_effects is None:
            tool_effects = _declared_by(os.environ.get(_EFFECTS_VARIABLE, ""))
        opener = _OpenerOfTasks(
            client or _own_client(), session, on_reply, auto_release, tool_effects
        )
        self._board = Board(opener)
        # LangChain has the run id of whatever it will tell more of; where that is gone (a cancel,
        # of which it tells nobody) what is known of the run goes too.
        self._answers: WeakKeyDictionary[UUID, Answer] = WeakKeyDictionary()
        """Model calls under way."""
        self._mutex = process.Mutex()
        """Of these calls, which are looked through."""
        self._tools: WeakKeyDictionary[UUID, tuple[str, str | None]] = WeakKeyDictionary()
        """Call ids of tools that run, and what their calls are called in their reply."""
        self._places: WeakKeyDictionary[UUID, Place] = WeakKeyDictionary()
        """Where each chain and tool that runs lies, with itself, by the numbers of their ids."""
        self._tasks: WeakKeyDictionary[UUID, str] = WeakKeyDictionary()
        """What LangGraph calls the tasks whose chains and tools run."""
        self._nodes: WeakKeyDictionary[UUID, tuple[str, object]] = WeakKeyDictionary()
        """The same, of the chain that is the task's own, and its step."""
        self._interrupted: dict[Hashable, set[str]] = {}
        """Those of them that wait for somebody, by their outermost run."""

    # --- models ---

    @safely
    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, **about: Any
    ) -> None:
        """A chat model is asked, and told what tools gave back."""
        self._begin(run_id, **about)
        place = self._place_of(about.get("parent_run_id"))
        for message in reversed(messages[0] if messages else ()):
            if message.type != "tool":
                break
            self._board.settle(place, message.tool_call_id)

    @safely
    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **about: Any) -> None:
        """A model without roles is asked."""
        self._begin(run_id, **about)

    def _begin(
        self,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        invocation_params: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if (known := self._answers.get(run_id)) is not None:
            known.times += 1
            return
        place = self._place_of(parent_run_id)
        named, asked = metadata or {}, invocation_params or {}
        about = {
            "model": named.get("ls_model_name"),
            "provider": named.get("ls_provider"),
            "tools_hash": hash_of_tools(asked.get("tools")),
        }
        call = self._board.begin(
            *place, about=about, run_id=str(run_id), model=about["model"], **_task_in(named)
        )
        with self._mutex.lock:
            self._answers[run_id] = Answer(call, str(run_id))

    @safely
    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        """A piece of the answer."""
        if (answer := self._heard(run_id)) is None:
            return
        message = getattr(chunk, "message", None)
        if message is not None:
            answer.told(message)
        elif token and isinstance(token, str):
            answer.call.token(token)

    @safely
    def on_stream_event(self, event: Any, *, run_id: UUID, **_: Any) -> None:
        """The same as an event, where the program is given events."""
        if (answer := self._heard(run_id)) is None:
            return
        answer.event(event)
        # Where no reason is told here `on_llm_end` may have it.
        if event.get("event") == "message-finish" and answer.was_streamed:
            about = event.get("metadata") or {}
            answer.call.said.usage = event.get("usage")
            if (reason := _reason_in(about)) is not None:
                self._said_to_end(answer.call, reason, about)

    def _heard(self, run_id: UUID) -> Answer | None:
        """The model call that something new is told of."""
        answer = self._answers.get(run_id)
        if answer is None or answer.is_heard() or answer.call.is_over:
            return None
        if not answer.is_watched:
            answer.watch()
        return answer

    def _ended_answer(self, run_id: UUID) -> Answer | None:
        """The model call of which nothing more is told."""
        with self._mutex.lock:
            answer = self._answers.pop(run_id, None)
        if answer is not None:
            answer.unwatch()
        return answer

    @safely
    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        """The model is done, or its stream is at an end without having said so."""
        if (answer := self._ended_answer(run_id)) is None:
            return
        call = answer.call
        generation = response.generations[0][0]
        message = getattr(generation, "message", None)
        call.message_id = getattr(message, "id", None)
        call.said.usage = getattr(message, "usage_metadata", None)
        if call.is_over:
            return
        was_streamed = answer.was_streamed
        if not was_streamed:
            if message is None:
                call.token(generation.text)
            else:
                answer.whole(message)
        about = {
            **(getattr(message, "response_metadata", None) or {}),
            **(generation.generation_info or {}),
        }
        call.said.know(model=about.get("model_name"), request_id=about.get("id"))
        reason = _reason_in(about)
        if reason is None and was_streamed:
            call.fail()
        else:
            self._said_to_end(call, reason, about)

    def _said_to_end(self, call: ModelCall, reason: Any, about: dict[str, Any]) -> None:
        """By the provider, for this reason; None: what was not streamed came whole without one."""
        if reason == "failed":
            call.fail(Failure("the response failed", "failed", about.get("error")))
            return
        if (failure := finish_failure(reason)) is not None:
            call.fail(failure)
            return
        if reason == "incomplete":
            reason = (about.get("incomplete_details") or {}).get("reason") or reason
        if reason is not None:
            call.finish(str(reason))
        interrupts.supersede(self._board, call)
        call.done()

    @safely
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """The model call ended in an exception, which the program gets."""
        answer = self._ended_answer(run_id)
        if answer is not None and not answer.call.is_over:
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
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """A tool begins to run."""
        place = self._enter(run_id, parent_run_id)
        if tool_call_id is not None and run_id not in self._tools:
            name = (serialized or {}).get("name")
            self._tools[run_id] = tool_call_id, self._board.tool_started(place, tool_call_id, name)
            if (task := (metadata or {}).get(_TASK)) is not None:
                self._tasks[run_id] = task
                if (reply := self._board.reply_of(place, tool_call_id)) is not None:
                    tasks.answered(reply.stream_id, task)

    @safely
    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """A tool has answered."""
        call_id = getattr(output, "tool_call_id", None) or self._tools.get(run_id, (None,))[0]
        told = _answer_in(output, call_id)
        if told is None:
            failed = getattr(output, "status", None) == "error"
            self._ended(run_id, call_id, getattr(output, "content", output), failed)
        else:
            self._ended(run_id, call_id, _of(told, "content"), _of(told, "status") == "error")

    @safely
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """A tool has failed, and may be run again (ToolRetryMiddleware); or LangGraph has stopped
        it, to run it again: its call stays open.
        """
        if _is_control_flow(error):
            self._leave(run_id)
            return
        text = f"{type(error).__name__}: {error}"
        self._ended(run_id, self._tools.get(run_id, (None,))[0], text, True, may_change=True)

    def _ended(
        self, run_id: UUID, call_id: str | None, result: Any, failed: bool, may_change: bool = False
    ) -> None:
        if (place := self._places.get(run_id)) is not None:
            given, own = self._tools.get(run_id, (None, None))
            by = own if call_id == given else call_id
            task = self._tasks.get(run_id)
            about = {} if task is None else tasks.facts(task)
            self._board.tool_result(
                place, by, result, failed=failed, may_change=may_change, **about
            )
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
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """A chain, a graph or a node begins."""
        place = self._enter(run_id, parent_run_id)
        if (task := (metadata or {}).get(_TASK)) is not None:
            self._tasks[run_id] = task
            if parent_run_id is None or self._tasks.get(parent_run_id) != task:
                self._nodes[run_id] = task, (metadata or {}).get("langgraph_step")
            interrupts.take_up(self._board, place[0], task)

    @safely
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """It is done; where it is the outermost run, no tool of it answers any more, unless it was
        interrupted.
        """
        if interrupted := self._interrupted.pop(run_id.int, None):
            interrupts.hold(self._board, run_id.int, interrupted, outputs)
        if (node := self._nodes.get(run_id)) is not None:
            tasks.completed(*node)
        if self._leave(run_id):
            for call in self._under_way_in(run_id):  # by itself: nothing tells when its tools ran
                call.place = ()
            tasks.settle()

    @safely
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """The same; what a model was saying in it, nobody gets any more."""
        for call in self._under_way_in(run_id):
            call.cancel(f"the run that it was in ended: {type(error).__name__}")
        place, task = self._places.get(run_id), self._tasks.get(run_id)
        if place and task and _is_control_flow(error, "GraphInterrupt"):
            self._interrupted.setdefault(place[0], set()).add(task)
        self._leave(run_id)

    def _under_way_in(self, run_id: UUID) -> list[ModelCall]:
        with self._mutex.lock:
            calls = [one.call for one in self._answers.values()]
        return [one for one in calls if run_id.int in one.place and not one.is_over]

    def _enter(self, run_id: UUID, parent_run_id: UUID | None) -> Place:
        return self._places.setdefault(run_id, (*self._place_of(parent_run_id), run_id.int))

    def _place_of(self, parent_run_id: UUID | None) -> Place:
        """Empty for a parent that the callback is not told of: nobody would say when it ends."""
        return () if parent_run_id is None else self._places.get(parent_run_id, ())

    def _leave(self, run_id: UUID) -> bool:
        """Was it the outermost run?"""
        self._tools.pop(run_id, None)
        self._tasks.pop(run_id, None)
        self._nodes.pop(run_id, None)
        if self._places.pop(run_id, None) != (run_id.int,):
            return False
        self._interrupted.pop(run_id.int, None)
        self._board.run_ended(run_id.int)
        return True


def _task_in(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a reply is told of the task of LangGraph's that a model's metadata names."""
    namespace = metadata.get(_TASK)
    if not isinstance(namespace, str) or not namespace:
        return {}
    return tasks.facts(namespace, metadata.get("langgraph_node"))


def _reason_in(about: dict[str, Any]) -> Any:
    """Of a message's metadata, the provider's word for its end."""
    return next((about[name] for name in _REASONS if about.get(name)), None)


def _is_control_flow(error: BaseException, name: str = "GraphBubbleUp") -> bool:
    """One of LangGraph's own: an interrupt, say, until a human has answered."""
    kinds = type(error).__mro__
    return any((one.__module__, one.__name__) == ("langgraph.errors", name) for one in kinds)


def _answer_in(output: Any, call_id: str | None) -> Any:
    """Of LangGraph's `Command`, alone or among others, the message that answers this call: an
    object, or a dict as LangGraph takes them too. None: it is no such thing.
    """
    for command in output if isinstance(output, list) else [output]:
        update = getattr(command, "update", None)
        # Of a tool node whose input is a list of messages it is a list of them too.
        for value in update.values() if isinstance(update, dict) else [update]:
            for one in value if isinstance(value, list) else [value]:
                if call_id is not None and _of(one, "tool_call_id") == call_id:
                    return one
    return None


def _of(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, dict) else getattr(message, name, None)


# --- attached by the environment -----------------------------------------------------------------

_mutex = process.Mutex()
_clients: list[ClientBase] = []


def _own_client() -> ClientBase:
    """One for the whole process: LangChain makes a callback for each outermost run."""
    with _mutex.lock:
        if not _clients:
            _clients.append(walld.connect())
        return _clients[0]


@cache
def _declared_by(text: str) -> Declared | None:
    """Of what is wrong the program can be told in the log alone, once: it has made nothing here.
    A tool that is not declared is one that a person is asked about.
    """
    if not text:
        return None
    try:
        given: Declared = json.loads(text)
        ToolEffects(given)
    except (TypeError, ValueError, RecursionError) as error:
        _log.error("%s declares nothing of any tool: %s", _EFFECTS_VARIABLE, error)
        return None
    return given


_attached: ContextVar[WalldCallback | None] = ContextVar("walld_langchain", default=None)
register_configure_hook(_attached, True, WalldCallback, env_var=_VARIABLE)
