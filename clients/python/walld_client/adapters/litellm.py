"""`tee` for LiteLLM: what `litellm.completion(..., stream=True)` and `acompletion` return.

    for chunk in tee(litellm.completion(..., stream=True), reply):

Owns: what LiteLLM's streams have of their own. Refuses: the rest, which is `teeing.py`'s; and
importing litellm, which takes seconds and is not needed.

- Of a body that ends without the provider's terminal event LiteLLM makes up a last chunk with a
  finish reason, or raises what it raises of a cut too, which its words alone tell apart. The stream
  knows what the provider has said; a reason that it has not said is not recorded. The reply is
  errored, kind `no_terminal_event`, either way.
- The provider's own finish reason is recorded, not LiteLLM's for it, which is `stop` for what it
  does not know, and for failures (`ERROR`, `network_error`).
- What a `Router` gives knows nothing of that itself: the stream that it reads does, or that of the
  fallback. A wrapper of an unknown kind is believed.
- Of several choices (`n` > 1) it hands on the first finish reason alone, as choice 0's, whosever it
  was: that is the end of all of them, for nobody can tell one that was cut behind it.
- Signatures and redacted thinking of Anthropic's models stand in `thinking_blocks`, whose text is
  that of `reasoning_content` again: they are kept as events, and the text once.
- Its callbacks are no way in: with `acompletion` none of them sees a chunk.
"""

from __future__ import annotations

import logging
from typing import Any

from walld_client.adapters.frameworks.recording import NO_TERMINAL
from walld_client.adapters.frameworks.teeing import Tee, made
from walld_client.adapters.frameworks.tool_effects import Declared, ToolEffects
from walld_client.adapters.wires.openai_chat import ChatFold
from walld_client.adapters.wires.openai_chunk import Choice, Chunk
from walld_client.adapters.wires.wire import held
from walld_client.argument_checks import wrong
from walld_client.null import NullMixin
from walld_client.reply.reply import ReplyBase
from walld_client.reply.terminal_events import message_of

__all__ = ["tee"]

_log = logging.getLogger("walld")
_ENDED_EARLY = "ended before a finish_reason"
"""Its words, in the exception of a body that ended by itself."""


def tee(
    stream: Any,
    reply: ReplyBase,
    *,
    tool_effects: Declared | None = None,
    continues: bool = False,
) -> Any:
    """`stream`, each chunk recorded in `reply` before it is handed on.

    The reply is the program's: it ends it once its copy is safe. tool_effects, continues: as
    `adapters.tee` has them.
    """
    effects = ToolEffects(tool_effects)
    if not isinstance(continues, bool):
        raise wrong("continues", "True or False", continues)
    if isinstance(reply, NullMixin):
        return stream
    return made(_LiteLlmTee, stream, reply, effects, continues=continues)


def _innermost(stream: Any) -> Any:
    """The stream that reads the provider: a Router's read others, which their generators hold."""
    while True:
        reads = getattr(stream, "completion_stream", None)
        frame = getattr(reads, "gi_frame", None) or getattr(reads, "ag_frame", None)
        have = {} if frame is None else frame.f_locals
        inner = have.get("fallback_response") or have.get("model_response")
        if not hasattr(inner, "received_finish_reason"):
            return stream
        stream = inner


class _LiteLlmTee(Tee):
    """A `CustomStreamWrapper` and its recording."""

    def _hear(self, item: Any) -> None:
        try:
            choices = getattr(item, "choices", None)
            first = held(choices[0]) if choices else {}
            if first.get("finish_reason"):
                if not self._is_said():
                    return
                item = self._in_own_words(item, first)
            self._recording.item(item)
            fold = self._recording.progress.fold
            if isinstance(fold, ChatFold):
                fold.has_one_reason = True
            delta = first.get("delta")
            # A declared field: to look into the others as well, as `held` does, costs 0.5 us.
            for block in vars(delta).get("thinking_blocks") or () if delta is not None else ():
                self._beside(block)
        except Exception:
            _log.warning("a chunk is passed over", exc_info=True)

    def _broke(self, error: BaseException) -> None:
        super()._broke(error)
        message = message_of(error)
        if _ENDED_EARLY in message and not self._recording.progress.is_superseded:
            self._reply._fail_at_end(message, kind=NO_TERMINAL.kind)

    def _is_said(self) -> bool:
        """False for a finish reason that LiteLLM has made up."""
        stream = _innermost(self._stream)
        if not getattr(stream, "sent_last_chunk", False):
            return True  # it hands on what another one has said
        said = getattr(stream, "received_finish_reason", "")
        early = getattr(stream, "intermittent_finish_reason", None)
        return said is not None or early is not None

    def _in_own_words(self, item: Any, first: dict[str, Any]) -> Any:
        """The chunk with the finish reason that the provider has said."""
        stream = _innermost(self._stream)
        said = getattr(stream, "received_finish_reason", None)
        if not said or not isinstance(said, str) or said == first["finish_reason"]:
            return item
        choices = [Choice(first.get("index"), first.get("delta"), said), *item.choices[1:]]
        own = {name: getattr(item, name, None) for name in ("id", "model", "usage")}
        return Chunk(choices=choices, **own)

    def _beside(self, block: Any) -> None:
        if block.get("signature"):
            self._reply.event("signature", {"signature": block["signature"]})
        elif block.get("type") == "redacted_thinking":
            self._reply.event("redacted_thinking", {"data": block.get("data")})
