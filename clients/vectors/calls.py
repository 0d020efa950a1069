"""What calls take, by the signatures of the Python client: one call a vector.

Owns: the names of kinds, values that each takes and refuses, and hashes of tools. Refuses: checking
(`argument_checks.py`). Clients in other languages hold their own checks to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from walld_client import argument_checks as checks
from walld_client.encoding.model_words import WORDS, tools_hash
from walld_client.reply.reply import Reply
from walld_client.session import ledger_steps, turn_steps
from walld_client.session.audit import Present
from walld_client.session.session_steps import SessionSteps
from walld_client.session.store_repair import startup
from walld_client.session.submitting import resume, submit
from walld_client.session.turn import Turn
from walld_client.session.turn_steps import TurnSteps

__all__ = ["KINDS", "calls", "hashes", "kinds"]

KINDS: dict[str, checks.Kind] = {
    name: next(one for one in declared.__metadata__ if isinstance(one, checks.Kind))
    for name, declared in {
        "id": checks.Ident,
        "entry": checks.EntryId,
        "beginning": checks.Beginning,
        "place": checks.Place,
        "seq": checks.Seq,
        "count": checks.Count,
        "exit_code": checks.ExitCode,
        "seconds": checks.Seconds,
        "time": checks.Time,
        "object": checks.Dict,
        "objects": checks.Dicts,
        "path": checks.Path,
        "path_or_object": checks.PathOrDict,
        "paths": checks.Files,
        "file_hashes": checks.FileHashes,
        "source": checks.Source,
        "sources": checks.Sources,
        "present": Present,
    }.items()
}
_SAME = {checks.Name: "id", bool: "bool", str: "text"}
_WORDS = {
    "side_effect": turn_steps.SIDE_EFFECTS,
    "resume_policy": turn_steps.RESUME_POLICIES,
    "idempotency": turn_steps.IDEMPOTENCY,
    "outcome": turn_steps.OUTCOMES,
    "state": turn_steps.APPROVALS,
    "format": ("plain", "openai", "anthropic"),
    **WORDS,
}
"""Declared as a text, and one of these."""
_OWN = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_SESSION = (
    *("append", "append_many", "message", "edit", "undo", "label", "setting", "change_model"),
    *("branch", "compact", "artifact", "read_artifact", "messages", "find", "events", "project"),
    *("checkpoint_workspace", "resume_check", "explain", "settle", "adopt"),
)
_TURN = (
    *("worker_started", "completed", "interrupted", "intent", "decision", "approval"),
    *("tool_started", "tool_finished", "observation"),
)
_CALLS: dict[str, Callable[..., Any]] = {
    "client.sessions": ledger_steps.sessions,
    "client.delete": ledger_steps.delete,
    "client.audit": ledger_steps.audited,
    "client.repair_plan": ledger_steps.plan,
    "startup": startup,
    **{f"session.{name}": getattr(SessionSteps, name) for name in _SESSION},
    "session.submit": submit,
    "session.resume": resume,
    "session.fork": SessionSteps.forked,
    "session.child": SessionSteps.child,
    **{f"turn.{name}": getattr(TurnSteps, name) for name in _TURN},
    "turn.reply": Turn.reply,
    "reply.model_call": Reply.model_call,
}
_WITHIN = ("self", "session", "seen", "leaving")
"""What the client itself gives to them."""
_EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "id": (["a", "\u00fc"], ["", "\ud800", 5, True, "x" * 1025, ["a"]]),
    "entry": (["a", "\u00fc"], ["", "\ud800", 5, True, "x" * 1025, ["a"], {}]),
    "beginning": (["", "a"], [5, True, "\ud800"]),
    "place": (["", "a"], [5, True, "\ud800", {}]),
    "seq": ([0, 2**53 - 1], [-1, 2**53, "1", True, 0.5]),
    "count": ([1, 2**53 - 1], [0, -1, 2**53, "1", True, 0.5]),
    "exit_code": ([0, -9, -(2**31), 2**32 - 1], [-(2**31) - 1, 2**32, "1", True, 0.5]),
    "object": ([{}, {"a": 1}], [[], "a", 5, True]),
    "objects": ([[], [{}]], [{}, "ab", 5, ["a"]]),
    "path": (["a"], [5, {}, ["a"]]),
    "path_or_object": (["a", {}], [5, ["a"], True]),
    "paths": ([[], ["a"]], ["ab", 5, [5]]),
    "file_hashes": ([[], ["a"], {"a": None}], ["ab", 5, [5]]),
    "source": (["a"], [5, {}, ["a"]]),
    "sources": ([[], ["a", {}]], ["ab", 5, [5]]),
    "present": ([[], ["a"]], ["ab", 5, [5]]),
}
"""Of those that JSON can say: seconds and times are of another type elsewhere."""
_TOOLS: list[Any] = [
    None,
    [],
    [{"name": "weather", "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}],
    [{"\uffff": 1, "\U0001f600": 2, "\ud83d": "\ud83d", "": '\u00fc\u2028\x7f\x01\n"\\ \\ud83d'}],
    [0, -1, 1.5, 0.0001, 0.00001, -1.25e-7, 2.5e-10, 1e21, 2**53, True, False, "7"],
]


def kinds() -> list[dict[str, Any]]:
    """A kind, what it takes and what it refuses."""
    return [
        {"kind": name, "takes": taken, "refuses": refused}
        for name, (taken, refused) in _EXAMPLES.items()
    ]


def hashes() -> list[dict[str, Any]]:
    """Tools, and their hash."""
    return [{"tools": one, "hash": tools_hash(one)} for one in _TOOLS]


def calls() -> list[dict[str, Any]]:
    """A call, and the kind of each argument: of one that may be None with a `?`, or words; and
    those (only_with) that belong to some words of another one.
    """
    return [_call(name, call) for name, call in _CALLS.items()]


def _call(name: str, call: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(inspect.unwrap(call), include_extras=True)
    arguments = {
        one.name: _kind(one.name, hints.get(one.name, Any), is_needed=_is_needed(one))
        for one in inspect.signature(call).parameters.values()
        if one.name not in _WITHIN and one.kind not in _OWN
    }
    told: dict[str, Any] = {"call": name, "arguments": arguments}
    only_with = {
        one: [rule.other, list(rule.words)]
        for one in arguments
        for rule in checks.rules_in(hints.get(one, Any))
    }
    return told | ({"only_with": only_with} if only_with else {})


def _is_needed(one: inspect.Parameter) -> bool:
    return one.default is one.empty and one.kind is not one.KEYWORD_ONLY


def _kind(name: str, hint: Any, *, is_needed: bool) -> Any:
    """None says that one is left out; only of one that is needed it says something else."""
    within = get_args(hint)
    is_optional = type(None) in within and is_needed
    plain = [one for one in within if one is not type(None)] if type(None) in within else [hint]
    if len(plain) > 1:
        return "either"
    (one,) = plain
    if name in _WORDS and one in (str, Any):
        return list(_WORDS[name])
    if get_origin(one) is Literal:
        return list(get_args(one))
    metadata = getattr(one, "__metadata__", ())
    found = [word for word, kind in KINDS.items() if _is_of(kind, metadata)]
    word = found[0] if found else _SAME.get(one, "any")
    return f"{word}?" if is_optional else word


def _is_of(kind: checks.Kind, metadata: tuple[Any, ...]) -> bool:
    return any(kind is one for one in metadata)
