"""What `tool_effects` may be: each adapter asks this as it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from walld_client.adapters import litellm, tee
from walld_client.adapters.frameworks.recording import Opener
from walld_client.adapters.frameworks.tool_effects import ToolEffects
from walld_client.session.turn_steps import IDEMPOTENCY, RESUME_POLICIES, SIDE_EFFECTS

PAIR = "(side_effect, resume_policy), or a dict of these two and, if need be, idempotency"
WORDS = {"side_effect": "read", "resume_policy": "never-rerun"}
EFFECTS, POLICIES, WAYS = map(", ".join, (SIDE_EFFECTS, RESUME_POLICIES, IDEMPOTENCY))
KEYED = "{'key': 'k', 'resume_policy': 'never-rerun', 'side_effect': 'read'}"
WRONG: list[tuple[Any, type[Exception], str]] = [
    (
        {"deploy": ("external", "never-rerun")},
        ValueError,
        f"tool_effects['deploy']: side_effect must be one of {EFFECTS}, got 'external'",
    ),
    (
        {"look": ("read", "never-rerun"), "deploy": ("read", 3)},
        ValueError,
        f"tool_effects['deploy']: resume_policy must be one of {POLICIES}, got 3",
    ),
    (
        {"deploy": WORDS | {"idempotency": "yes"}},
        ValueError,
        f"tool_effects['deploy']: idempotency must be one of {WAYS}, got 'yes'",
    ),
    ({"deploy": "read"}, TypeError, f"tool_effects['deploy'] must be {PAIR}, got str 'read'"),
    ({"deploy": "ab"}, TypeError, f"tool_effects['deploy'] must be {PAIR}, got str 'ab'"),
    ({"deploy": None}, TypeError, f"tool_effects['deploy'] must be {PAIR}, got None"),
    (
        {"deploy": ("read",)},
        TypeError,
        f"tool_effects['deploy'] must be {PAIR}, got tuple ('read',)",
    ),
    (
        {"deploy": {"side_effect": "read"}},
        TypeError,
        f"tool_effects['deploy'] must be {PAIR}, got dict {{'side_effect': 'read'}}",
    ),
    (
        {"deploy": WORDS | {"key": "k"}},
        TypeError,
        f"tool_effects['deploy'] must be {PAIR}, got dict {KEYED}",
    ),
    (
        {7: ("read", "never-rerun")},
        TypeError,
        "tool_effects must be a dict of tools by their names, each a str, got int 7 in it",
    ),
    (
        ["deploy"],
        TypeError,
        "tool_effects must be a dict of tools by their names, or None, got list ['deploy']",
    ),
]
MAKERS: list[Callable[[Any, Any], Any]] = [
    lambda client, given: Opener(client, "s", tool_effects=given),
    lambda client, given: tee(iter(()), client.reply("s"), tool_effects=given),
    lambda client, given: litellm.tee(iter(()), client.reply("s"), tool_effects=given),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("given", "kind", "text"), WRONG)
def test_what_cannot_be_meant_is_refused_where_the_adapter_is_made(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Any, Any], Any],
    given: Any,
    kind: type[Exception],
    text: str,
) -> None:
    """Also where walld is switched off: the next start may not be."""
    monkeypatch.setenv("WALLD_ENABLED", "0")
    with pytest.raises(kind) as raised:
        make(walld_client.connect(), given)
    assert str(raised.value) == text


@pytest.mark.parametrize("effect", SIDE_EFFECTS)
@pytest.mark.parametrize("policy", RESUME_POLICIES)
def test_all_words_of_an_intent_are_taken(effect: str, policy: str) -> None:
    both = {"side_effect": effect, "resume_policy": policy}
    ToolEffects({"a": (effect, policy), "b": both, "c": both | {"idempotency": "safe"}})
