"""Hooks for OpenAI Agents: what models say and what tools give back.

    hooks = WalldHooks(walld, "session-1")
    await Runner.run(agent, "hello", hooks=hooks)

    result = Runner.run_streamed(agent, "hello", hooks=hooks)
    async for event in hooks.tee(result):
        ...

Owns: the runs of Agents to calls on a reply. Refuses: the events of a model (they are those of
Responses, `openai_responses.py`, for Chat models too), when a reply ends (`model_call.py`).

Hooks alone see an answer when it is whole: of one that is cut, nothing. `tee` sees each event
before the program does.

A tool's context is another one than its model's. Its run is told by the very object of its call,
which Agents hands on from the answer to the tool; where a run goes on that was interrupted, by a
copy of it, equal to the response's id; or else by the usage, which a run's contexts share.

No hook tells the result of a handoff's call, of one that is rejected (by whoever approves, or by a
guardrail), or of some tools. The events do of a run's own, and so does what the next model is told,
unless an input filter leaves it out. Without `tee`, and where no model is asked behind it
(`stop_on_first_tool`), such a call stays open: the reply is complete all the same.

The calls of a run that was interrupted wait as long as the program holds its result or state, also
where that was teed: either holds what the model has answered. One that is approved behind that, in
another process say, stays open.

Of a Chat model that is not at OpenAI itself Agents makes up a `response.completed`, also for a
stream that was cut without a word, and keeps the finish reason to itself. What tells them apart is
the usage, which providers send last: such an answer without it is errored, and the error says why.
Agents asks for it with `ModelSettings(include_usage=True)`; a server that never sends it has all
its replies errored, since nobody can tell whether they are whole. Of one that sends it earlier too,
or with the finish reason `error`, the replies are complete: Agents shows the last usage, not when.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from walld_client.adapters.frameworks.extras import needs
from walld_client.adapters.frameworks.model_call import Board, ModelCall, Place, safely
from walld_client.adapters.frameworks.recording import NO_TERMINAL, Opener, SessionId
from walld_client.adapters.frameworks.tool_effects import Declared
from walld_client.adapters.wires.call_names import CallNames
from walld_client.adapters.wires.openai_responses import ResponsesFold
from walld_client.adapters.wires.wire import Failure, call_name, plain
from walld_client.client import ClientBase
from walld_client.reply.terminal_events import message_of

with needs("openai-agents", "agents"):
    from agents import RunHooks
    from agents.models.fake_id import FAKE_RESPONSES_ID

__all__ = ["WalldHooks"]

_WITHOUT_RESPONSE = "did not produce a final response"
"""What it raises of a body of Responses that ended by itself, without its terminal event."""
_WITHOUT_USAGE = Failure(
    "the answer may be cut: OpenAI Agents keeps a Chat model's finish reason to itself, and no"
    " usage, which is sent last, came; ask for it with ModelSettings(include_usage=True)",
    "no_terminal_event",
)
_USAGE = ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
_RESULTS = ("tool_call_output_item", "handoff_output_item")


class WalldHooks(RunHooks[Any]):
    """Records each model call as a reply, with the results of the tools it asked for.

    session_id: a str, or a callable that is asked when a model call begins, in its context.
    on_reply: gets the stream id of each reply when it begins, for `client.release(stream_id)` once
    the answer is saved.
    auto_release: the program keeps no copy of its own; a whole answer is forgotten at once.
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
        tool_effects: Declared | None = None,
    ) -> None:
        self._board = Board(Opener(client, session_id, on_reply, auto_release, tool_effects))
        self._runs: dict[int, _Run] = {}
        """By the id of their context, as long as that lives."""
        self._held: set[_Run] = set()
        """Without it: interrupted, and the program holds their state, which has another context."""

    def tee(self, result: Any) -> AsyncIterator[Any]:
        """`result.stream_events()`, each event recorded before it is handed on.

        To be asked for before the program awaits anything else: a run that the hooks have begun to
        record as whole answers goes on so, and no text is there twice.
        """
        run = self._run_of(result.context_wrapper)
        if run.is_told_whole:
            events: AsyncIterator[Any] = result.stream_events()
            return events
        run.is_teed = True
        return run.tee(result)

    @safely
    def _llm_started(self, context: Any, agent: Any, items: Any) -> None:
        run = self._run_of(context)
        for item in reversed(items):
            have = plain(item)
            if not isinstance(have, dict) or not str(have.get("type")).endswith("_call_output"):
                break
            self._is_told(run, have.get("call_id"), plain(have.get("output")))
        model = getattr(agent, "model", None)
        run.begin(model if isinstance(model, str) else None)

    def _is_told(self, run: _Run, call_id: Any, output: Any) -> None:
        """What the model is told of a call of the answer before: hooks do not tell of all."""
        before = self._run_with(call_id) or run
        if before is not run or not run.is_teed:
            self._board.tool_result((before.key,), call_id, output)

    @safely
    def _llm_ended(self, context: Any, response: Any) -> None:
        run = self._run_of(context)
        run.asked = list(response.output)
        for item in run.asked:
            _give_own_id(item)
        if run.is_teed:
            return
        run.is_told_whole = True
        call = run.next_call()
        names = CallNames()
        for item in response.output:
            _whole(call, plain(item), names)
        usage = {name: plain(getattr(response.usage, name, None)) for name in _USAGE}
        call.said.usage = usage
        call.said.know(request_id=getattr(response, "response_id", None))
        call.done()

    def _run_of(self, context: Any) -> _Run:
        key = id(context)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run(self._board, context.usage)
            weakref.finalize(context, self._forget, key)
        return run

    @safely
    def _forget(self, key: int) -> None:
        run = self._runs.pop(key)
        items, run.asked = run.asked, []
        if not items or not self._board.is_open(run.key):
            self._board.run_ended(run.key)
            return
        run.held = [weakref.ref(one) for one in items]
        self._held.add(run)
        for one in items:
            weakref.finalize(one, self._drop, run)

    @safely
    def _drop(self, run: _Run) -> None:
        """One of its calls is held by nobody any more; or the program ends."""
        run.dropped += 1
        if run.dropped == len(run.held):
            self._held.discard(run)
            self._board.run_ended(run.key)

    def _run_of_tool(self, context: Any) -> _Run | None:
        """The run that a tool answers to; None where that cannot be told."""
        runs = [*self._runs.values(), *self._held]
        item, usage = getattr(context, "tool_call", None), getattr(context, "usage", None)
        found = [run for run in runs if any(one is item for one in run.items())]
        if not found and (run := self._run_with(getattr(item, "call_id", None))) is not None:
            return run
        found = found or [run for run in runs if run.usage is usage]
        return found[0] if len(found) == 1 else None

    def _run_with(self, call_id: Any) -> _Run | None:
        """The run whose model has given this very id."""
        runs = [*self._runs.values(), *self._held]
        found = [run for run in runs if any(_is_id_of(call_id, one) for one in run.items())]
        return found[0] if len(found) == 1 else None

    @safely
    def _agent_ended(self, context: Any) -> None:
        """Its context is another one than its model's, as a tool's is."""
        usage = getattr(context, "usage", None)
        found = [run for run in self._runs.values() if run.usage is usage]
        if len(found) == 1 and not found[0].is_teed:
            self._board.run_ended(found[0].key)

    @safely
    def _tool_started(self, context: Any, tool: Any) -> None:
        call_id = getattr(context, "tool_call_id", None)
        run = self._run_of_tool(context)
        self._board.tool_started(_place(run), call_id, getattr(tool, "name", None))

    @safely
    def _tool_ended(self, context: Any, tool: Any, result: object) -> None:
        call_id, name = getattr(context, "tool_call_id", None), getattr(tool, "name", None)
        run = self._run_of_tool(context)
        is_told = self._board.tool_result(_place(run), call_id, plain(result), name=name)
        if is_told and run is not None and run.is_teed:
            run.told[call_id] += 1

    async def on_llm_start(
        self, context: Any, agent: Any = None, system_prompt: Any = None, input_items: Any = ()
    ) -> None:
        """A model is asked."""
        self._llm_started(context, agent, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """A model's answer, whole."""
        self._llm_ended(context, response)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """A tool begins to run."""
        self._tool_started(context, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """A tool has answered."""
        self._tool_ended(context, tool, result)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """The run is over."""
        self._agent_ended(context)


class _Run:
    """One run of an agent, by its context."""

    def __init__(self, board: Board, usage: Any) -> None:
        self.key = object()
        """No other run's, which an id may be again."""
        self.usage = usage
        """Its tools share it."""
        self.asked: list[Any] = []
        """What the model has answered last: its calls are handed on to their tools."""
        self.held: list[weakref.ref[Any]] = []
        """The same, once the run's context is gone."""
        self.dropped = 0
        self.is_teed = False
        self.is_told_whole = False
        self._board = board
        self._begun: deque[ModelCall] = deque()
        """Model calls of which nothing was read yet: events are read later than they come."""
        self._last: ModelCall | None = None
        self._call: ModelCall | None = None
        """The model call whose events come."""
        self._fold = ResponsesFold()
        self.told: Counter[Any] = Counter()
        """Results that the hooks have told and events are to tell again, by call id."""

    def items(self) -> list[Any]:
        """What the model has answered last, as far as anybody has it."""
        return self.asked or [one for ref in self.held if (one := ref()) is not None]

    def begin(self, model: str | None) -> None:
        """A model is asked, in the context of the run: its session is asked for there."""
        if not self.is_teed:
            self._begun.clear()
            self._board.run_ended(self.key)
        self._begun.append(self._board.begin(self.key, about={"model": model}))

    def next_call(self) -> ModelCall:
        """The model call whose answer comes, or another attempt at it.

        No tool of the one before answers any more.
        """
        self._board.run_ended(self.key)
        if self._begun:
            self._last = self._begun.popleft()
        elif self._last is not None:
            self._last = self._last.again()
        else:
            self._last = self._board.begin(self.key)
        return self._last

    async def tee(self, result: Any) -> AsyncIterator[Any]:
        """Its events, and how they end."""
        events = result.stream_events()
        try:
            async for event in events:
                self._event(event)
                yield event
        except BaseException as error:
            self._broke(error)
            raise
        finally:
            if isinstance(events, AsyncGenerator):  # Agents waits there for its run
                await events.aclose()
        self._ended(result)

    @safely
    def _event(self, event: Any) -> None:
        if event.type == "raw_response_event":
            self._said(event.data)
        elif event.type == "run_item_stream_event" and event.item.type in _RESULTS:
            raw = plain(event.item.raw_item)
            have = raw if isinstance(raw, dict) else {}
            call_id = have.get("call_id")
            if self.told[call_id]:  # it may be a result of another call of the same id by now
                self.told[call_id] -= 1
            else:
                output = getattr(event.item, "output", have.get("output"))
                self._board.tool_result((self.key,), call_id, plain(output))

    def _said(self, item: Any) -> None:
        if item.type == "response.created" or self._call is None:
            self._cut()
            self._call = self.next_call()
            self._fold = ResponsesFold()
        call = self._call
        if item.type == "response.completed" and _is_made_up(item.response):
            self._call = None
            call.fail(_WITHOUT_USAGE)
            return
        self._fold.take(item, call)
        call.said.usage = self._fold.model.usage
        if self._fold.failure is not None:
            self._call = None
            call.fail(self._fold.failure)
        elif self._fold.is_ended:
            self._call = None
            call.done()

    def _cut(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.fail(self._fold.complaint or NO_TERMINAL)

    @safely
    def _ended(self, result: Any) -> None:
        call = self._call
        # Nothing public tells a stream that `cancel()` ended from one that was cut.
        if call is not None and getattr(result, "_cancel_mode", None) == "immediate":
            self._call = None
            call.cancel("the program cancelled the run")
        self._cut()
        if not getattr(result, "interruptions", None):
            self._board.run_ended(self.key)

    @safely
    def _broke(self, error: BaseException) -> None:
        call, self._call = self._call, None
        complaint = self._fold.complaint or (
            NO_TERMINAL if _WITHOUT_RESPONSE in message_of(error) else None
        )
        if call is not None and complaint is not None:
            call.fail(complaint)
        elif call is not None:
            call.broke(error)
        self._board.run_ended(self.key)


def _place(run: _Run | None) -> Place:
    return () if run is None else (run.key,)


def _give_own_id(item: Any) -> None:
    """The same call id, as a str that no other call has. A parser may give one str to all."""
    call_id = getattr(item, "call_id", None)
    if type(call_id) is str:
        item.call_id = call_id.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")


def _is_id_of(call_id: Any, asked: Any) -> bool:
    """Is it the very one of the call that was asked for? Of a character Python has one str."""
    return type(call_id) is str and len(call_id) > 1 and call_id is getattr(asked, "call_id", None)


def _is_made_up(response: Any) -> bool:
    """Is that the end of a Chat model's stream of which nothing says that it was whole?"""
    return response.id == FAKE_RESPONSES_ID and response.usage is None


def _whole(call: ModelCall, item: Any, names: CallNames) -> None:
    """An item of an answer that came whole."""
    if not isinstance(item, dict):
        return
    kind = str(item.get("type"))
    if kind == "message":
        for part in item.get("content") or ():
            if part.get("text"):
                call.token(part["text"])
            elif part.get("refusal"):
                call.token(part["refusal"], refusal=True)
    elif kind == "reasoning":
        for part in (*(item.get("summary") or ()), *(item.get("content") or ())):
            if part.get("text"):
                call.reasoning(part["text"])
    elif kind.endswith("_call"):
        name = call_name(item.get("name") or kind.removesuffix("_call"))
        given = item.get("call_id")
        call_id, about = names.begin(given or str(item.get("id")))
        more = about if given else {**about, "server": True}
        call.tool(name, item.get("arguments"), call_id=call_id, **more)
