"""Checks what a program says of a model's call, before it is sent.

Owns: the errors, which name the argument, what it got and what it takes. Refuses: the vocabulary
(`encoding/model_words.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from walld_client.argument_checks import checked_word, wrong
from walld_client.encoding.model_words import (
    CHARS_MAX,
    NAMES,
    NUMBERS_MAX,
    WORDS,
    is_name,
    is_number,
)
from walld_client.encoding.value_encoding import brief

__all__ = ["checked_facts"]


def checked_facts(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of these a program has given, as an event says it. ValueError or TypeError names the
    argument and what it got. A program that gives nothing has said nothing: ValueError.
    """
    told = {name: value for name, value in given.items() if value is not None}
    if not told:
        raise ValueError(f"model_call needs one of {', '.join(given)}, got none")
    for name in NAMES & told.keys():
        if not isinstance(told[name], str):
            raise wrong(name, "a str or None", told[name])
        if not is_name(told[name]):
            limit = f"1 to {CHARS_MAX} characters"
            raise ValueError(f"{name} must be {limit}, got {brief(told[name])}")
    for name, allowed in WORDS.items():
        if name in told:
            checked_word(name, told[name], allowed)
    if "usage" in told:
        told["usage"] = _checked_usage(told["usage"])
    return told


def _checked_usage(usage: object) -> dict[str, Any]:
    if not isinstance(usage, Mapping):
        raise wrong("usage", "a dict of numbers or None", usage)
    if len(usage) > NUMBERS_MAX:
        raise ValueError(f"usage must have at most {NUMBERS_MAX} numbers, got {len(usage)}")
    for name, number in usage.items():
        if not isinstance(name, str) or not is_name(name):
            limit = f"texts of 1 to {CHARS_MAX} characters"
            raise ValueError(f"usage must have {limit} as names, got {brief(name)}")
        if not is_number(number):
            raise ValueError(f"usage[{name!r}] must be a number from 0, got {brief(number)}")
    return dict(usage)
