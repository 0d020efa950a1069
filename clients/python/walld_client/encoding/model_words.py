"""The words in which a reply says what is known of the model's call that a step of it is.

Owns: the vocabulary, what of a payload fits it, the class of an error, the hash of tools. Refuses:
the checks of a program's own words (`reply/model_checks.py`), the record of a step (the daemon's
`replies/model_facts.py`).

A program says them in events of kind `model_call`. An event of kind `usage`, or `usage` beside a
text, says numbers alone; `model` and `provider` with which a reply was begun are its steps'. What
an application had there before is read for what fits, and kept as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from typing import Any, Final

__all__ = [
    "CHARS_MAX",
    "ERROR_CLASSES",
    "MODEL_CALL",
    "NAMES",
    "NUMBERS_MAX",
    "OF_REPLY",
    "STATUSES",
    "TOLD_IN",
    "USAGE",
    "WORDS",
    "error_class_of",
    "facts_in",
    "is_name",
    "is_number",
    "may_tell",
    "tools_hash",
]

MODEL_CALL: Final = "model_call"
"""Kind of the events, and type of the entries."""
ERROR_CLASSES: Final = (
    "provider",
    "rate_limit",
    "context_length",
    "content_filter",
    "timeout",
    "cancelled",
    "invalid_output",
    "other",
)
STATUSES: Final = ("complete", "partial", "cancelled", "error")
"""partial: its end was not seen, or a limit or a filter of the provider cut it."""

USAGE: Final = "usage"
"""Kind of events with numbers alone."""
TOLD_IN: Final = (MODEL_CALL, USAGE)
"""Kinds of events."""
OF_REPLY: Final = ("model", "provider")
"""Read of what a reply was begun with."""
_PACKED: Final = tuple(name.encode() for name in (*OF_REPLY, USAGE))
NAMES: Final = ("model", "provider", "request_id", "tools_hash")
CHARS_MAX: Final = 256
NUMBERS_MAX: Final = 32
"""Of one usage."""
WORDS: Final = {"status": STATUSES, "error_class": ERROR_CLASSES}

_LOOKED_AT_CHARS: Final = 1024
_CONTEXT_LENGTH: Final = (
    "context_length",
    ("contextlength", "contextwindow", "promptistoolong", "prompttoolong", "maximumcontext"),
)
_CLASS_BY_PART: Final = (
    ("rate_limit", ("ratelimit", "toomanyrequest", "quota", "throttl", "resourceexhausted")),
    _CONTEXT_LENGTH,
    ("content_filter", ("contentfilter", "contentpolicy", "refusal", "safety", "guardrail")),
    ("timeout", ("timeout", "timedout", "deadline")),
    ("cancelled", ("cancel", "abort", "keyboardinterrupt")),
    (
        "invalid_output",
        ("invalidoutput", "outputpars", "modelbehavior", "malformed", "jsondecode", "notjson"),
    ),
    (
        "provider",
        (
            *("provider", "overloaded", "servererror", "serverdisconnected", "unavailable"),
            *("badgateway", "connect", "network", "readerror", "incompleteread", "remoteprotocol"),
            *("apierror", "apistatus", "noterminalevent", "finishreasonerror", "responsefailed"),
        ),
    ),
)
"""In this order: a part of a kind of error, in small letters without signs, says its class."""


def facts_in(payload: object) -> dict[str, Any]:
    """What of a payload fits, whoever wrote it. Never raises."""
    if not isinstance(payload, Mapping):
        return {}
    told = {name: payload.get(name) for name in (*NAMES, *WORDS)}
    facts = {
        name: value
        for name, value in told.items()
        if (value in WORDS[name] if name in WORDS else is_name(value))
    }
    usage = payload.get("usage")
    if isinstance(usage, Mapping):
        numbers = {name: one for name, one in usage.items() if is_name(name) and is_number(one)}
        if numbers:
            facts["usage"] = dict(list(numbers.items())[:NUMBERS_MAX])
    return facts


def is_name(value: object) -> bool:
    """It may be a model, an id, the name of a number."""
    return isinstance(value, str) and 0 < len(value) <= CHARS_MAX


def is_number(value: object) -> bool:
    """It may be one of a usage."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isfinite(value) and 0 <= value < 2**53


def tools_hash(tools: object) -> str:
    """SHA-256, in hex digits, of the tools as a request has them: as JSON without spaces, keys in
    order, UTF-8. The order of the tools counts. Raises TypeError or ValueError for what is no JSON.
    """
    said = json.dumps(
        tools, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def error_class_of(*kinds: object, message: str = "") -> str:
    """The class of an error, by its kinds and codes, the first that tells; `other` for none.

    message: providers say there alone that a prompt was too long.
    """
    words = [_letters(one) for one in kinds if isinstance(one, str)]
    for word in words:
        for name, parts in _CLASS_BY_PART:
            if any(part in word for part in parts):
                return name
    _, parts = _CONTEXT_LENGTH
    return "context_length" if any(part in _letters(message) for part in parts) else "other"


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:_LOOKED_AT_CHARS].lower()))


def may_tell(packed: bytes | None) -> bool:
    """What was said beside a text or a reply's beginning may say something of its model."""
    return packed is not None and any(name in packed for name in _PACKED)
