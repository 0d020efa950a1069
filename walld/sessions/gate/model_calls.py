"""The model's calls of a session, one a step of a reply.

Owns: which there are, each once. Refuses: what a reply says of them (`replies/model_facts.py`), the
tool calls that a model asked for (`state/account.py`).

A reply that went has left an entry of type `model_call` for each step of which something is known;
one that is not released says the same itself. Both in turn, as behind a kill, are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from walld_client.encoding.model_words import error_class_of, facts_in

from walld.sessions.state.account import Unreleased
from walld.sessions.state.events import Event

__all__ = ["calls_by_turn", "model_calls", "total_usage"]

_TIMES: Final = ("at_ms", "ended_at_ms")
_OF_BEFORE: Final = {"errored": "error", "crashed": "partial", "live": "partial"}
"""Builds before wrote the status of the whole reply."""
_TEXTS: Final = ("model", "provider", "request_id", "tools_hash", "error_class")
_ALSO: Final = ("error_kind", "finish_reason")


def model_calls(
    events: Sequence[Event], unreleased: Sequence[Unreleased] = ()
) -> list[dict[str, Any]]:
    """One a step, in order of the entries; those of a reply that is not released stand where its
    turn began, without a turn behind the last entry.

    Each: id (`stream:first seq:call`), seq (of that place), turn, stream, step (its first seq),
    started_at_ms (of the reply), at_ms, ended_at_ms, status (complete | partial | cancelled |
    error), model, provider, request_id, usage (name -> number), tools_hash, error_class,
    error_kind, finish_reason, unreleased. What nobody said is None, usage empty.
    """
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for seq, turn, payload, is_unreleased in _said(events, unreleased):
        stream, step = payload.get("stream"), payload.get("step")
        if not isinstance(stream, str) or not isinstance(step, int):
            continue  # an application's own
        facts = facts_in(payload)
        if not isinstance(payload.get("at_ms"), int) and payload.get("error_class") is None:
            continue  # it tells of tool calls alone
        key = stream, _int_in(payload, "started_at_ms"), step, turn
        told = found.get(key)
        if told is None:
            told = found[key] = {
                "id": f"{stream}:{step}:call",
                "seq": seq,
                "turn": turn,
                "stream": stream,
                "step": step,
                "started_at_ms": _int_in(payload, "started_at_ms"),
                **dict.fromkeys(_TIMES),
                "status": "partial",
                **dict.fromkeys(_TEXTS),
                "usage": {},
                **dict.fromkeys(_ALSO),
                "unreleased": is_unreleased,
            }
        elif is_unreleased:
            continue  # its entry has come already
        _add(told, payload, facts)
    return sorted(found.values(), key=lambda one: one["seq"])


def _add(told: dict[str, Any], payload: Mapping[str, Any], facts: dict[str, Any]) -> None:
    status = payload.get("status")
    if isinstance(status, str) and status in _OF_BEFORE:
        facts["status"] = _OF_BEFORE[status]
    kind = payload.get("error_class")
    if isinstance(kind, str) and "error_class" not in facts:  # of before: any word of the program
        facts |= {"error_class": error_class_of(kind), "error_kind": kind}
    told |= facts
    for name in _TIMES:
        if (at_ms := _int_in(payload, name)) is not None:
            told[name] = at_ms
    for name in _ALSO:
        if isinstance(text := payload.get(name), str):
            told[name] = text


def _said(
    events: Sequence[Event], unreleased: Sequence[Unreleased]
) -> Iterator[tuple[int, str | None, Mapping[str, Any], bool]]:
    begun = dict[str | None, int]()
    for event in events:
        if event.type == "model_call":
            yield event.seq, event.turn, event.payload, False
        elif event.type == "turn_submitted":
            begun.setdefault(event.turn, event.seq)
    last_seq = events[-1].seq if events else 0
    for reply in unreleased:
        for payload in reply.model_calls:
            yield begun.get(reply.turn, last_seq), reply.turn, payload, True


def _int_in(payload: Mapping[str, Any], name: str) -> int | None:
    value = payload.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def calls_by_turn(records: Sequence[dict[str, Any]]) -> dict[str | None, list[dict[str, Any]]]:
    """The same by turn."""
    found: dict[str | None, list[dict[str, Any]]] = {}
    for one in records:
        found.setdefault(one["turn"], []).append(one)
    return found


def total_usage(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The sum of each number that they have."""
    total: dict[str, float] = {}
    for one in records:
        for name, number in one["usage"].items():
            total[name] = total.get(name, 0) + number
    return total
