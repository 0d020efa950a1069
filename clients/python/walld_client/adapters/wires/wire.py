"""What the folds of the three wires share: the sink of a fold, and how a body ended.

Owns: `Sink` (the calls of a Reply that a fold makes), `Fold`, `Failure`. Refuses: every wire
(`openai_chat.py`, `openai_responses.py`, `anthropic_messages.py`).

A fold reads attributes, so that the same code folds bodies (msgspec Structs, made by `body.py`)
and the objects that an SDK has made of them. It trusts no type of a leaf: what is not text where
text should be is passed over. Pure: the same items make the same calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from walld_client.adapters.wires.model_said import ModelSaid

__all__ = [
    "EXTRA",
    "LIMITS",
    "Failure",
    "Fold",
    "Sink",
    "call_name",
    "failure_of",
    "finish_failure",
    "finish_word",
    "held",
    "plain",
]


class Sink(Protocol):
    """Where a fold puts what was said: a Reply, or a test's list."""

    def token(self, text: str, **info: Any) -> int:
        """A piece of the answer."""

    def reasoning(self, text: str, **info: Any) -> int:
        """A piece of the model's reasoning."""

    def tool(
        self, name: str, arguments: object = None, *, call_id: str | None = None, **info: Any
    ) -> int:
        """A call, or an update of it."""

    def tool_arguments(self, delta: str, *, call_id: str) -> int:
        """The next piece of a call's arguments."""

    def tool_result(
        self,
        result: object,
        *,
        call_id: str | None = None,
        name: str | None = None,
        failed: bool = False,
        **info: Any,
    ) -> int:
        """What a call that the provider ran gave back."""

    def event(self, kind: str, payload: object = None) -> int:
        """What stands beside the answer: ids, signatures, other choices."""

    def finish(self, reason: str | None = None) -> int:
        """The provider's own word that the message is done."""


class Failure(NamedTuple):
    """The provider said in the body that it failed."""

    message: str
    kind: str
    detail: Any = None


_FAILURES: Final = frozenset(
    {
        "abort",
        "aborted",
        "error",
        "failed",
        "insufficient_system_resource",
        "malformed_function_call",
        "malformed_model_output",
        "malformed_response",
        "malformed_tool_use",
        "missing_thought_signature",
        "network_error",
        "timeout",
        "too_many_tool_calls",
        "unexpected_tool_call",
    }
)
"""The daemon's verdict is `provider_error` for these. A reason that nobody knows is an end."""


LIMITS: Final = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "max_completion_tokens", "model_length"),
        *("model_context_window_exceeded", "content_filter", "content-filter", "incomplete"),
    }
)
"""Finish reasons that may have cut the last call, whatever is said of it."""


class Fold(ABC):
    """One body, item by item."""

    is_ended = False
    """The wire's terminal marker was seen: nothing of the answer can follow."""
    failure: Failure | None = None
    """The provider's error was seen: nothing of the answer can follow either."""

    complaint: Failure | None = None
    """The answer goes on, but where the body ends it has failed."""

    odd = 0
    """Items of which a part was of another kind than it should be: passed over, the rest taken."""

    def __init__(self) -> None:
        self.model = ModelSaid()
        """What is told of the model; whoever records may know more before the first item."""

    @abstractmethod
    def take(self, item: Any, sink: Sink) -> None:
        """Say to `sink` what `item` adds."""

    def may_end_here(self) -> bool:
        """Is a body that ends now a whole one?"""
        return self.is_ended

    def odd_events(self) -> int:
        """Items of which a part was passed over."""
        return self.odd


NO_NAME: Final = "unnamed"


def call_name(name: object) -> str:
    """A call's name, also where the provider gave none."""
    return name if isinstance(name, str) and name else NO_NAME


def finish_word(reason: str, asks_for_tools: bool) -> str:
    """The finish reason of a message, `tool_calls` where it asks the program to run tools.

    Responses says `completed` then, and some servers of Chat `stop`: words of a final answer, and
    whoever reads a reply that was killed among its tools would take it for one.
    """
    return "tool_calls" if asks_for_tools and reason in ("completed", "stop") else reason


def finish_failure(reason: object) -> Failure | None:
    """Of a finish reason that is no end: of some servers and gateways, whose model broke."""
    word = str(reason).strip().lower().replace("-", "_").replace(" ", "_")
    if word not in _FAILURES:
        return None
    return Failure(f"the finish reason is {str(reason)!r}", "finish_reason_error")


def failure_of(error: object, fallback: str) -> Failure:
    """A vendor's error object, whatever its shape. Never raises."""
    about = plain(error)
    if not isinstance(about, dict):
        return Failure(str(about or fallback), "provider_error")
    detail = dict(about)
    message = detail.pop("message", None)  # said, and redacted, as the message
    kind = detail.get("type") if detail.get("type") != "error" else None
    kind = kind or detail.get("code")
    return Failure(str(message or fallback), str(kind or "provider_error"), detail)


EXTRA: Final = "__pydantic_extra__"
"""Where pydantic's objects hold what is not declared of them."""


def held(value: Any) -> dict[str, Any]:
    """What an SDK's object holds, by name: for what it may or may not have.

    To ask pydantic's for an attribute that is missing costs 3 us, of which a chunk has several.
    """
    have = vars(value)
    more = getattr(value, EXTRA, None)
    return {**have, **more} if more else have


def plain(value: Any) -> Any:
    """An SDK's object as dicts and lists; what is that already, as it is."""
    if value is None or isinstance(value, (dict, list, str, int, float, bool)):
        return [plain(one) for one in value] if isinstance(value, list) else value
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return str(value)
    return dump(mode="python", exclude_none=True, warnings=False)
