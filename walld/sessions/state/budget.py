"""The budget as the application last said it.

Owns: which event counts and when it is used up. Refuses: counting anything itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from walld.sessions.state.events import Event

__all__ = ["is_exhausted", "last_budget"]


def last_budget(events: Sequence[Event]) -> dict[str, Any] | None:
    """The payload of the newest budget event, None where there is none."""
    return next((event.payload for event in reversed(events) if event.type == "budget"), None)


def is_exhausted(budget: Mapping[str, Any]) -> bool:
    """It says so, nothing remains, or as much is used as may be."""
    if budget.get("exhausted") is True:
        return True
    remaining, used, limit = (_number(budget.get(name)) for name in ("remaining", "used", "limit"))
    if remaining is not None and remaining <= 0:
        return True
    return used is not None and limit is not None and used >= limit


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return None
