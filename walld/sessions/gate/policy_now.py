"""What the policy of who asks the gate says of a call, now.

Owns: the argument `policy` and which of its words is a call's. Refuses: judging (`call_rules.py`).

{"tools": {tool: word}, "calls": [{turn, call_id, word}]}: a call's own word goes before that of its
tool, that before the one of `*`, which is any other tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.errors import BadArgument

__all__ = ["words_of"]

_WORDS: Final = {"allow": "allows", "ask": "asks", "deny": "denies"}
_LIMIT: Final = '{"tools": {tool: allow | ask | deny}, "calls": [{turn, call_id, word}]}'


def words_of(policy: Mapping[str, Any] | None) -> Callable[[CallAccount], str]:
    """A call's word: not_given | allows | asks | denies. Raises BadArgument."""
    policy = policy or {}
    tools, calls = policy.get("tools", {}), policy.get("calls", [])
    if not isinstance(tools, dict) or not isinstance(calls, list) or policy.keys() - _KEYS:
        raise BadArgument("policy", f"an object of {len(policy)} fields", _LIMIT)
    if not all(isinstance(one, dict) and one.keys() == _OF_CALL for one in calls):
        raise BadArgument("policy", f"a list of {len(calls)} calls", _LIMIT)
    for word in (*tools.values(), *(one["word"] for one in calls)):
        if not isinstance(word, str) or word not in _WORDS:
            raise BadArgument("policy", ascii(word)[:80], _LIMIT)
    own = {(str(one["turn"]), str(one["call_id"])): one["word"] for one in calls}

    def word_of(call: CallAccount) -> str:
        named = own.get((str(call.turn), call.call_id))
        name = call.state.tool or call.name
        word = named or tools.get(name) or tools.get("*")
        return "not_given" if word is None else _WORDS[word]

    return word_of


_KEYS: Final = {"tools", "calls"}
_OF_CALL: Final = {"turn", "call_id", "word"}
