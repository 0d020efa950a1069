"""A capability for Pydantic AI: what models say and what tools give back.

    agent = Agent(model, capabilities=[WalldCapability(walld, "session-1")])

Owns: Pydantic AI's events to calls on a reply. Refuses: when a reply ends (`model_call.py`).

- The first fragment of a part stands in `part_start` and not in a delta; it is taken there.
- What the program streams (`run_stream`, `run_stream_events`, a node's `stream` in `iter`, an
  `event_stream_handler`) is recorded as it comes. The requests of a plain `agent.run()` stay
  what they are, one answer each, recorded whole when it is there. With `stream_runs=True`
  Pydantic AI asks for streams there too, as it does for every capability that looks at events: what
  a killed `run()` had got so far is then kept, and a model that cannot be streamed fails.
- A streamed answer ends when the program has read all of it, and not only where it leaves the block
  (`run_stream`): the stream knows by then what the provider has said. One that asks for tools goes
  on, as always; but `run_stream` tells nobody what its output tool gave back, nor which calls
  behind the output it left out: they stay `unknown`, and the reply is whole once the output is set.
- An output is taken back where a tool beside it asks for a retry. No event tells that, the next
  request does: what an event told of an output stands until then, or until the run is over.
- Tools are seen where they run, and their results in the events, or in the next request. An
  exception that ends the run is the result of the tool that raised it.
- Tools that wait for somebody (`DeferredToolRequests`) have their results in the reply that asked
  for them while the program holds the messages: they come in another run.
- Pydantic AI reports a stream that was cut without a word as `complete`, and for Chat makes up a
  finish reason (`stop`, or `tool_call`). What tells them apart is the provider's own word in
  `provider_details`: a streamed answer without it is errored. So is each one of a server that never
  sends a reason, and of `TestModel` and `FunctionModel`: nobody can tell whether those are whole.
  The reason `error`, of the provider or of Pydantic AI, is no end.
- Another attempt at a request, and another request, are replies of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from typing import Any

from walld_client.adapters.frameworks.extras import needs
from walld_client.adapters.frameworks.model_call import Board, ModelCall, safely
from walld_client.adapters.frameworks.pydantic_ai_deferred import Tools, defer, take_up
from walld_client.adapters.frameworks.recording import Opener, SessionId
from walld_client.adapters.frameworks.tool_effects import Declared
from walld_client.adapters.wires.call_names import CallNames
from walld_client.adapters.wires.model_said import hash_of_tools
from walld_client.adapters.wires.wire import Failure, call_name, finish_failure, plain
from walld_client.client import ClientBase
from walld_client.reply.terminal_events import message_of

with needs("pydantic-ai", "pydantic_ai"):
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
    from pydantic_ai.messages import ToolReturn
    from pydantic_ai.result import AgentStream
    from pydantic_ai.tools import DeferredToolRequests

__all__ = ["WalldCapability"]

_LEFT = ("incomplete", "interrupted")
_ANOTHER_ATTEMPT = Failure("the request was made again", "retried")


class WalldCapability(AbstractCapability[Any]):
    """Records each model request as a reply, with the results of the tools it asked for.

    session_id: a str, or a callable that is asked when a model request begins, in its context.
    on_reply: gets the stream id of each reply when it begins, for `client.release(stream_id)` once
    the answer is saved.
    auto_release: the program keeps no copy of its own; a whole answer is forgotten at once.
    stream_runs: `agent.run()` asks for streams too, so that a half answer is there to be kept.
    tool_effects: of tools by name, (side_effect, resume_policy) as `turn.intent` has them: what the
    gate judges a call by that has no result.
    """

    def __init__(
        self,
        client: ClientBase,
        session_id: SessionId,
        *,
        on_reply: Callable[[str], object] | None = None,
        auto_release: bool = False,
        stream_runs: bool = False,
        tool_effects: Declared | None = None,
    ) -> None:
        opener = Opener(client, session_id, on_reply, auto_release, tool_effects)
        self._make_board = partial(Board, opener)
        self._stream_runs = stream_runs and not opener.is_off

    async def for_run(self, ctx: Any) -> AbstractCapability[Any]:
        """The one of this run: what it remembers is of one run."""
        return _Run(self._make_board(), self._stream_runs)


class _Run(AbstractCapability[Any]):
    """One run of an agent."""

    def __init__(self, board: Board, stream_runs: bool) -> None:
        self._stream_runs = stream_runs
        self._own = Tools(board)
        self._tools = self._own
        """Before the first request: those of the run that this one goes on with."""
        self._call: ModelCall | None = None
        """The model request under way."""
        self._own_names = CallNames()
        self._ids: dict[int, str] = {}
        """Calls by the index of their part."""
        self._names: dict[str, str] = {}
        """What each call that a tool of the program answers is called so far."""
        self._was_streamed = False
        self._shown: set[str] = set()
        """Calls of tools that the events show: their results come there too."""
        self._came: list[tuple[Any, Any, bool]] = []
        """Calls, what their tools gave back, and did they fail, where it is to be told elsewhere:
        it counts if the run ends before."""

    @property
    def has_wrap_run_event_stream(self) -> bool:
        """Must requests be streamed for this? Streams that there are pass through it anyhow."""
        return self._stream_runs

    async def wrap_run(self, ctx: Any, *, handler: Callable[[], Any]) -> Any:
        """When the run is over no tool of it answers any more."""
        self._take_up(ctx)
        try:
            result = await handler()
        except BaseException:
            self._end_run(None)
            raise
        self._end_run(result)
        return result

    @safely
    def _take_up(self, ctx: Any) -> None:
        self._tools = take_up(ctx.messages) or self._own

    async def after_node_run(self, ctx: Any, *, node: Any, result: Any) -> Any:
        """The run has its output: all tools that it still ran have answered."""
        if type(result).__name__ == "End":
            self._output_set(ctx, node, result)
        return result

    @safely
    def _output_set(self, ctx: Any, node: Any, result: Any) -> None:
        if isinstance(getattr(result.data, "output", None), DeferredToolRequests):
            return
        if type(node).__name__ != "SetFinalResult":  # `run_stream`'s: its messages are not here
            self._results(ctx.messages)
        self._tell_rest()
        self._tools.end()

    @safely
    def _end_run(self, result: Any) -> None:
        is_over = True
        try:
            messages = [] if result is None else result.all_messages()
            self._results(messages)  # of calls that ended the run: in its last message
            self._tell_rest()
            output = getattr(result, "output", None)
            if isinstance(output, DeferredToolRequests):
                is_over = not defer(output, messages, self._tools)
        finally:
            if is_over:
                self._tools.end()

    def _tell_rest(self) -> None:
        for call, value, failed in self._came.copy():
            self._told(call, value, failed)

    def _told(self, call: Any, result: Any, failed: bool = False, may_change: bool = False) -> None:
        """A result of a call, or of whatever has its id and name."""
        about = {"name": call.tool_name, "failed": failed, "may_change": may_change}
        self._tools.board.tool_result((self._tools.run,), call.tool_call_id, result, **about)
        its = (call.tool_call_id, call.tool_name)
        for one in self._came:
            if (one[0].tool_call_id, one[0].tool_name) == its:
                self._came.remove(one)
                break

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """A tool runs: what it gives back is recorded here unless the events will show it."""
        self._running(call)
        try:
            result = await handler(args)
        except (ApprovalRequired, CallDeferred):
            raise
        except Exception as error:  # a retry's is told to the model, others end the run
            self._came.append((call, f"{type(error).__name__}: {message_of(error)}", True))
            raise
        self._returned(call, result)
        return result

    @safely
    def _running(self, call: Any) -> None:
        if call.tool_call_id not in self._shown:
            self._started(call)

    def _started(self, call: Any) -> None:
        tools = self._tools
        tools.board.tool_started((tools.run,), call.tool_call_id, call.tool_name)

    @safely
    def _returned(self, call: Any, result: Any) -> None:
        value = _whole(result.return_value if isinstance(result, ToolReturn) else result)
        if call.tool_call_id in self._shown:
            self._came.append((call, value, False))
        else:
            self._told(call, value)

    def _results(self, messages: Any) -> None:
        """What the newest request tells the model of its calls, where nothing else has."""
        for part in messages[-1].parts if messages else ():
            if part.part_kind in ("tool-return", "retry-prompt"):
                self._result(part)

    def _result(self, part: Any, may_change: bool = False) -> None:
        # A retry's part says what was wrong with the call; other parts have an outcome.
        failed = getattr(part, "outcome", "retried") not in ("success", "interrupted")
        self._told(part, _whole(part.content), failed, may_change)

    async def wrap_model_request(
        self, ctx: Any, *, request_context: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """One request, and its end as Pydantic AI sees it."""
        self._begin(ctx, request_context)
        try:
            response = await handler(request_context)
        except BaseException as error:
            self._broke(error)
            raise
        self._ended(response)
        return response

    async def wrap_run_event_stream(
        self, ctx: Any, *, stream: AsyncIterable[Any]
    ) -> AsyncIterator[Any]:
        """Each event is recorded before it is handed on."""
        is_new = True
        answer = _answer_in(stream)
        try:
            async for event in stream:
                self._event(event, is_new)
                is_new = False
                yield event
            self._read(answer)
        except BaseException as error:  # told here first; the request is cancelled behind it
            self._broke(error)
            raise
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    @safely
    def _begin(self, ctx: Any, request_context: Any) -> None:
        self._results(request_context.messages)
        model = getattr(getattr(request_context, "model", None), "model_name", None)
        run_id = getattr(ctx, "run_id", None)
        about = {"model": model, "run_id": None if run_id is None else str(run_id)}
        self._tools.end()  # no tool of the request before answers any more
        self._tools = self._own
        self._came.clear()
        self._names.clear()
        asked = getattr(request_context, "model_request_parameters", None)
        tools = [_tool(one) for one in getattr(asked, "function_tools", None) or ()]
        told = {"model": model, "tools_hash": hash_of_tools(tools)}
        self._call = self._own.board.begin(self._own.run, about=told, **about)
        self._was_streamed = False
        self._parts_begin()

    @safely
    def _broke(self, error: BaseException) -> None:
        call, self._call = self._call, None
        if call is not None and not call.is_over:
            call.broke(error)

    @safely
    def _read(self, answer: AgentStream[Any, Any] | None) -> None:
        """The program has read all of it."""
        call = self._call
        if answer is None or call is None or call.is_over or answer.cancelled:
            return
        _end(call, answer.response)

    @safely
    def _ended(self, response: Any) -> None:
        call, self._call = self._call, None
        if call is None or call.is_over:
            return
        if not self._was_streamed:
            for index, part in enumerate(response.parts):
                self._part(call, index, part)
        if self._was_streamed and getattr(response, "state", None) in _LEFT:
            call.cancel("the program left the stream before its end")
            return
        _end(call, response, came_whole=not self._was_streamed)

    @safely
    def _event(self, event: Any, is_new: bool) -> None:
        kind = getattr(event, "event_kind", None)
        if kind in ("part_start", "part_delta"):
            call = self._call
            if call is None:
                return
            if is_new and self._was_streamed:  # a second stream of one request
                if not call.is_over:
                    call.fail(_ANOTHER_ATTEMPT)
                self._call = call = call.again()
                self._parts_begin()
            self._was_streamed = True
            if kind == "part_start":
                self._part(call, event.index, event.part)
            else:
                self._delta(call, event.index, event.delta)
        elif kind in ("function_tool_call", "output_tool_call"):
            self._shown.add(event.part.tool_call_id)
            self._started(event.part)
        elif kind in ("function_tool_result", "output_tool_result"):
            # An output is taken back where a tool beside it asks for a retry: no event tells that.
            self._result(event.part, may_change=kind == "output_tool_result")

    def _parts_begin(self) -> None:
        """Of another answer."""
        self._ids.clear()
        self._own_names = CallNames()

    def _part(self, call: ModelCall, index: int, part: Any) -> None:
        kind = part.part_kind
        if kind == "text":
            if part.content:
                call.token(part.content)
        elif kind == "thinking":
            if part.content:
                call.reasoning(part.content)
            _signed(call, part.signature)
        elif kind in ("tool-call", "builtin-tool-call"):
            about = {"server": True} if kind == "builtin-tool-call" else {}
            call_id, more = self._own_names.begin(part.tool_call_id)
            self._ids[index] = call_id
            arguments = part.args if isinstance(part.args, dict) else None
            name = call_name(part.tool_name)
            if not about:
                self._names[call_id] = part.tool_name
            call.tool(name, arguments, call_id=call_id, **about, **more)
            if part.args and isinstance(part.args, str):
                call.tool_arguments(part.args, call_id=call_id)
        elif kind == "builtin-tool-return":
            call.tool_result(_whole(part.content), call_id=part.tool_call_id, server=True)
        else:
            call.event("unknown_block", {"block": {"part_kind": kind, "content": _plain(part)}})

    def _delta(self, call: ModelCall, index: int, delta: Any) -> None:
        kind = delta.part_delta_kind
        if kind == "text":
            if delta.content_delta:
                call.token(delta.content_delta)
        elif kind == "thinking":
            if delta.content_delta:
                call.reasoning(delta.content_delta)
            _signed(call, delta.signature_delta)
        elif kind == "tool_call" and index in self._ids:
            self._called(call, self._ids[index], delta)

    def _called(self, call: ModelCall, call_id: str, delta: Any) -> None:
        """More of a call: of odd servers its id comes late, or its name in pieces."""
        if call_id in self._names and call_id in call.waiting:
            about = {}
            if delta.tool_call_id not in (None, "", call.waiting[call_id].given):
                about["given_id"] = delta.tool_call_id
            if delta.tool_name_delta:
                self._names[call_id] += delta.tool_name_delta
            if about or delta.tool_name_delta:
                call.tool(call_name(self._names[call_id]), call_id=call_id, **about)
        arguments = delta.args_delta
        if arguments and isinstance(arguments, str):
            call.tool_arguments(arguments, call_id=call_id)
        elif arguments:
            call.event("tool_arguments", {"call_id": call_id, "merge": arguments})


_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def _answer_in(stream: Any) -> AgentStream[Any, Any] | None:
    """Whose events these are, if a model's: the generators that they come through hold it. Nothing
    public tells a capability what the provider's last word was before the program goes on.
    """
    while (frame := getattr(stream, "ag_frame", None)) is not None:
        have = frame.f_locals
        if isinstance(answer := have.get("self"), AgentStream):
            return answer
        stream = have.get("stream")
    return None


def _tool(tool: Any) -> dict[str, Any]:
    """A tool, as the model is told of it."""
    names = {"name": "name", "description": "description", "parameters": "parameters_json_schema"}
    return {name: getattr(tool, own, None) for name, own in names.items()}


def _end(call: ModelCall, response: Any, came_whole: bool = False) -> None:
    """An answer is at its end. A streamed one was whole, or cut without a word."""
    usage = getattr(response, "usage", None)
    call.said.usage = {name: getattr(usage, name, None) for name in _USAGE}
    call.said.usage |= getattr(usage, "details", None) or {}
    call.said.know(
        provider=getattr(response, "provider_name", None),
        request_id=getattr(response, "provider_response_id", None),
    )
    own = (response.provider_details or {}).get("finish_reason")
    if failure := finish_failure(own) or finish_failure(response.finish_reason):
        call.fail(failure)
        return
    # For a stream that was cut Pydantic AI makes up one of these two.
    if not came_whole and own is None and response.finish_reason in (None, "stop", "tool_call"):
        call.fail()
        return
    if response.finish_reason is not None:
        call.finish(str(response.finish_reason))
    call.done()


def _signed(call: ModelCall, signature: Any) -> None:
    """What has to be sent back with a thought; of a hidden one it is all there is."""
    if signature and isinstance(signature, str):
        call.event("signature", {"signature": signature})


def _plain(part: Any) -> Any:
    """What it holds, as far as an event takes it."""
    content = getattr(part, "content", None)
    return _whole(content if content is not None else repr(part))


def _whole(content: Any) -> Any:
    return content if isinstance(content, str) else plain(content)
