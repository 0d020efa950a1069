"""What is told of a model's call, in the words that all adapters use. No I/O.

Owns: the names of its numbers, whichever the vendor has for them. Refuses: where they are found
(the folds, the files named after SDKs), what becomes of them (the daemon).

The numbers are the vendor's: Anthropic counts what it reads from its cache beside `input_tokens`,
the others within.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from walld_client.encoding.model_words import MODEL_CALL, error_class_of, facts_in, tools_hash

__all__ = ["ModelSaid", "hash_of_tools", "usage_of"]

_NAMES: Final = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "cache_read_tokens": ("cache_read_input_tokens", "cache_read_tokens", "cached_tokens"),
    "cache_write_tokens": ("cache_creation_input_tokens", "cache_write_tokens"),
    "reasoning_tokens": ("reasoning_tokens",),
}
_WITHIN: Final = {"cache_read": "cached_tokens", "cache_creation": "cache_write_tokens"} | {
    "reasoning": "reasoning_tokens"
}
"""LangChain's names in `input_token_details` and `output_token_details`."""


def usage_of(about: object) -> dict[str, Any]:
    """A vendor's usage, as a dict; empty where it has no number that is known."""
    if not isinstance(about, dict):
        return {}
    flat = dict(about)
    for name, more in about.items():
        if name.endswith("_details") and isinstance(more, dict):
            flat |= {_WITHIN.get(within, within): number for within, number in more.items()}
    found = {
        ours: next((flat[name] for name in names if flat.get(name) is not None), None)
        for ours, names in _NAMES.items()
    }
    fits: dict[str, Any] = facts_in({"usage": found}).get("usage", {})
    return fits


def hash_of_tools(tools: object) -> str | None:
    """Of those that a request has; None where it has none, or what is no JSON."""
    if not tools:
        return None
    try:
        return tools_hash(tools)
    except (TypeError, ValueError, RecursionError):
        return None


class ModelSaid:
    """What was said of one call of a model. The first word counts, and is said once."""

    __slots__ = ("_known", "_said", "is_again", "usage")

    def __init__(self, **known: Any) -> None:
        self._known = facts_in(known)
        """What is said with the next word."""
        self.usage: Any = None
        """The vendor's, the newest there is, as a dict: it is said at the end."""
        self._said: set[str] = set()
        self.is_again = False
        """The answer goes on behind a word that it had ended: that of its new end counts."""

    def know(self, **facts: Any) -> None:
        """What is known beside the answer: it is said with the next word of that."""
        self._known = facts_in(facts) | self._known

    def say(self, event: Callable[[str, object], int], **facts: Any) -> None:
        """By a reply's `event`, what fits and is new."""
        known, self._known = self._known, {}
        fits = facts_in(facts) | known
        if new := {name: one for name, one in fits.items() if name not in self._said}:
            self._said |= new.keys()
            event(MODEL_CALL, new)

    def end(
        self,
        event: Callable[[str, object], int],
        status: str,
        kind: str | None = None,
        message: str = "",
    ) -> None:
        """How it ended, and what it took. kind, message: of an error. That it is complete its
        finish reason says, and whether a limit or a filter cut it.
        """
        told: dict[str, Any] = {"usage": usage_of(self.usage)}
        if self.is_again:
            self._said -= {"usage", "status", "error_class"}
        if status != "complete" or self.is_again:
            told["status"] = status
        self.is_again = False
        if status == "error":
            told["error_class"] = error_class_of(kind, message=message)
        self.say(event, **told)
