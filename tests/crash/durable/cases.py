"""Which durable loops are killed where: every pair of choices once, or the whole product.

Owns: the choices, and which of them go together. Refuses: running one (`trial.py`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

__all__ = ["STEPS", "every_pair", "everything"]

BOOKINGS = ("journal", "a reply each step", "one reply held open", "reply alone")
_BEFORE = ("user saved", "submit", "checkpoint", "request sent")
_REPLY = ("reply opened",)
_SAID = ("first token", "last token")
_CALL = ("call said",)
_JOURNAL = (
    "intent",
    "decision",
    "approval asked",
    "granted",
    "tool_started",
    "effect",
    "tool_finished",
    "observation",
)
_END = ("assistant entry", "completed")
STEPS = {
    "journal": (*_BEFORE, *_SAID, *_JOURNAL, *_END),
    "a reply each step": (*_BEFORE, *_REPLY, *_SAID, *_CALL, *_JOURNAL, *_END),
    "one reply held open": (*_BEFORE, *_REPLY, *_SAID, *_CALL, *_JOURNAL, "tool_result", *_END),
    "reply alone": (*_BEFORE, *_REPLY, *_SAID, *_CALL, "effect", "tool_result", *_END),
}
"""Behind which a program of that booking is killed, in the order of its life."""
_ASKED = ("approval asked", "granted")
AGAIN = (
    "submit",
    "request sent",
    "last token",
    "call said",
    "intent",
    "tool_started",
    "effect",
    "tool_finished",
    "tool_result",
    "assistant entry",
    "completed",
    None,
)
"""Behind which the resumed one is; None, or a step that it does not come to: it is not."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "booking": BOOKINGS,
    "step": tuple(dict.fromkeys(itertools.chain(*STEPS.values()))),
    "effect": ("none", "read", "workspace-write", "external-write", "network", "process"),
    "policy": (
        "replay-from-event",
        "rerun-after-check",
        "require-user-confirmation",
        "never-rerun",
    ),
    "format": ("plain", "openai", "anthropic"),
    "again": AGAIN,
    "answer": ("look", "deny", "grant"),
    "promises": (True, False),
    "idempotency": ("unsafe", "safe"),
    "runs_directly": (True, False),
}
"""answer: what is said of a call that the gate asks about."""
_WIDE = (("step", "again"), ("effect", "again"))
"""Pairs that the small selection leaves to the product: they alone would be 300 cases."""


def _is_one(case: dict[str, Any]) -> bool:
    if case["booking"] not in STEPS or case["step"] not in STEPS[case["booking"]]:
        return False
    # Who writes no journal promises none, and runs nothing before the model has spoken.
    return case["booking"] != "reply alone" or not (case["promises"] or case["runs_directly"])


def everything() -> Iterator[dict[str, Any]]:
    """Each step with each effect, policy, format and booking; the rest takes turns."""
    rest = random.Random(7)
    first = ("booking", "step", "effect", "policy", "format")
    for values in itertools.product(*(CHOICES[name] for name in first)):
        case = dict(zip(first, values, strict=True))
        if case["step"] not in STEPS[case["booking"]]:
            continue
        others = {name: rest.choice(CHOICES[name]) for name in CHOICES if name not in first}
        case |= others
        if case["booking"] == "reply alone":
            case["promises"] = case["runs_directly"] = False
        yield case


def every_pair() -> list[dict[str, Any]]:
    """Cases in which each two values that go together do, in one at least."""
    rand = random.Random(1)
    open_pairs = set(_pairs())
    cases = []
    while open_pairs:
        seed = rand.choice(sorted(open_pairs, key=repr))
        best, most = None, 0
        for _ in range(60):
            case = {name: rand.choice(values) for name, values in CHOICES.items()} | dict(seed)
            case = _mended(case, rand, dict(seed))
            if case is None:
                continue
            gained = len(open_pairs & set(_pairs_of(case)))
            if gained > most:
                best, most = case, gained
        assert best is not None, seed
        cases.append(best)
        open_pairs -= set(_pairs_of(best))
    return cases


def _mended(
    case: dict[str, Any], rand: random.Random, kept: dict[str, Any]
) -> dict[str, Any] | None:
    if case["step"] not in STEPS[case["booking"]]:
        if "booking" in kept:
            case["step"] = rand.choice(STEPS[case["booking"]])
        else:
            fits = [one for one in BOOKINGS if case["step"] in STEPS[one]]
            case["booking"] = rand.choice(fits)
    if case["booking"] == "reply alone":
        case["promises"] = case["runs_directly"] = False
    return case if _is_one(case) and kept.items() <= case.items() else None


def _pairs() -> Iterator[tuple[tuple[str, Any], ...]]:
    for one, other in itertools.combinations(CHOICES, 2):
        if (one, other) in _WIDE:
            continue
        for values in itertools.product(CHOICES[one], CHOICES[other]):
            pair = ((one, values[0]), (other, values[1]))
            chosen = dict(pair)
            booking, step = chosen.get("booking"), chosen.get("step")
            if booking and step and step not in STEPS[booking]:
                continue
            if booking == "reply alone" and (chosen.get("promises") or chosen.get("runs_directly")):
                continue
            yield pair


def _pairs_of(case: dict[str, Any]) -> Iterator[tuple[tuple[str, Any], ...]]:
    for one, other in itertools.combinations(CHOICES, 2):
        if (one, other) not in _WIDE:
            yield ((one, case[one]), (other, case[other]))
