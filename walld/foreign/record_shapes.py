"""What a record of each format has at its top: how one is told from a piece of another.

Owns: that. Refuses: finding one in damaged lines (`damage.py`), what it means (the formats).

Stricter than the readers are: these decide of objects that stand on no line of their own, and what
a cut record holds (a message, a block) is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["is_record", "may_be_held"]


def is_record(format: str, value: dict[str, Any]) -> bool:  # noqa: A002
    """Whether it is a whole record of that format."""
    return _RECORDS[format](value)


def may_be_held(format: str, value: dict[str, Any]) -> bool:  # noqa: A002
    """Whether another record of the format may have it within it."""
    return format in ("codex", "gptme") and "payload" not in value


def _codex(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if isinstance(value.get("payload"), dict):
        return isinstance(kind, str) and "timestamp" in value
    if kind in ("message", "function_call", "function_call_output", "reasoning"):
        return not {"role", "call_id", "summary"}.isdisjoint(value)
    return "record_type" in value or (kind is None and {"id", "timestamp"} <= value.keys())


def _claude(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    return {"uuid", "parentUuid"} <= value.keys() or "sessionId" in value or "leafUuid" in value


def _pi(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str) or "timestamp" not in value:
        return kind == "session" and "id" in value
    return {"id", "parentId"} <= value.keys() or kind in _PI_OF_1


_PI_OF_1: Final = frozenset(
    ("session", "message", "model_change", "thinking_level_change", "compaction")
)


def _gptme(value: dict[str, Any]) -> bool:
    if isinstance(value.get("payload"), dict):
        return {"seq", "ts", "type"} <= value.keys()
    return isinstance(value.get("role"), str) and {"content", "timestamp"} <= value.keys()


def _walld(value: dict[str, Any]) -> bool:
    if "walld" in value:
        return isinstance(value["walld"], int)
    is_event = isinstance(value.get("type"), str) and isinstance(value.get("payload"), dict)
    return is_event and {"seq", "id"} <= value.keys()


_RECORDS: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "codex": _codex,
    "claude": _claude,
    "pi": _pi,
    "gptme": _gptme,
    "walld": _walld,
}
