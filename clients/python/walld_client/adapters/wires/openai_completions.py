"""The wires of completions, as there were before chats: OpenAI's, and Anthropic's. Sans-IO.

Owns: chunks to calls on a reply. Refuses: bytes (`body.py`).

- The first choice of OpenAI's is the reply; further ones are events of kind `choice`, as in Chat.
- Done is `[DONE]`, or the end of a body in which every choice had its finish_reason; of Anthropic's
  an event with a stop_reason.
"""

from __future__ import annotations

from typing import Any

import msgspec
from walld_client.adapters.wires.openai_chat import DONE
from walld_client.adapters.wires.openai_chunk import index_of
from walld_client.adapters.wires.wire import Fold, Sink, failure_of, finish_failure, plain

__all__ = ["Completion", "CompletionFold"]


class Completion(msgspec.Struct):
    """One chunk of either vendor, as far as it says something of the reply."""

    id: Any = None
    model: Any = None
    choices: Any = None
    completion: Any = None
    stop_reason: Any = None
    error: Any = None
    usage: Any = None


class CompletionFold(Fold):
    """One completion."""

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False
        self._unfinished: set[int] = set()
        """Choices that have spoken and are not done."""
        self._finished: set[int] = set()

    def take(self, item: Any, sink: Sink) -> None:
        """A chunk, or DONE."""
        if item is DONE:
            self.failure = self.complaint
            self.is_ended = self.failure is None
            return
        if error := getattr(item, "error", None):
            self.failure = failure_of(error, "the provider reported an error")
            return
        is_anthropics = isinstance(getattr(item, "completion", None), str)
        if not self._has_begun:
            self._has_begun = True
            wire = "anthropic-completions" if is_anthropics else "openai-completions"
            about = {"id": getattr(item, "id", None), "model": getattr(item, "model", None)}
            sink.event("provider", {"wire": wire, **about})
            self.model.say(sink.event, model=about["model"], request_id=about["id"])
        if usage := getattr(item, "usage", None):
            self.model.usage = plain(usage)
        if is_anthropics:
            self._said(0, item.completion, item.stop_reason, sink)
            self.is_ended = bool(item.stop_reason) and self.complaint is None
            self.failure = self.complaint
            return
        for choice in plain(item.choices) or ():
            have = choice if isinstance(choice, dict) else plain(choice)
            if isinstance(have, dict):
                index = index_of(have.get("index")) or 0
                self._said(index, have.get("text"), have.get("finish_reason"), sink)
            else:
                self.odd += 1

    def _said(self, index: int, text: Any, reason: Any, sink: Sink) -> None:
        if text and not isinstance(text, str):
            self.odd += 1
        elif text and index:
            sink.event("choice", {"index": index, "content": text})
        elif text:
            sink.token(text)
        if not reason:
            if index not in self._finished:
                self._unfinished.add(index)
            return
        self._unfinished.discard(index)
        self._finished.add(index)
        if index:
            return
        if (failure := finish_failure(reason)) is not None:
            self.complaint = failure
        else:
            sink.finish(str(reason))

    def may_end_here(self) -> bool:
        """An SDK's stream does not hand `[DONE]` on."""
        is_over = bool(self._finished) and not self._unfinished
        return self.is_ended or (is_over and self.complaint is None)
