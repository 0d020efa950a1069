"""Where the turns begin that a rollback takes away: as Codex counts them, by what the model has."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from imported_session import told_texts
from test_foreign_codex import item, line, said

from walld.foreign import codex

ENVIRONMENT = "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"


def rolled_back(turns: int) -> str:
    return line("event_msg", type="thread_rolled_back", num_turns=turns)


def screen(text: str) -> str:
    return line("event_msg", type="user_message", message=text)


def completed(text: str) -> str:
    shown = {"type": "UserMessage", "id": "i", "content": [{"type": "text", "text": text}]}
    return line("event_msg", type="item_completed", thread_id="t", turn_id="1", item=shown)


SCREENS: dict[str, Callable[[str], list[str]]] = {
    "nothing": lambda text: [said("user", text)],
    "before": lambda text: [screen(text), said("user", text)],
    "behind": lambda text: [said("user", text), screen(text)],
    "item": lambda text: [said("user", text), completed(text)],
    "twice": lambda text: [screen(text), said("user", text), completed(text), screen(text)],
}


def asked(lines: list[str]) -> list[str]:
    imported = codex.read(lines)
    assert imported.not_understood == 0
    return [text for _, text in told_texts(imported, "plain")]


@pytest.mark.parametrize("shown", SCREENS)
def test_what_the_screen_shows_counts_for_nothing(shown: str) -> None:
    lines = [said("user", ENVIRONMENT)]
    for text in ("kept", "dropped", "too"):
        lines += [*SCREENS[shown](text), said("assistant", f"on {text}")]
    lines += [rolled_back(2), *SCREENS[shown]("instead")]
    assert asked(lines) == [ENVIRONMENT, "kept", "on kept", "instead"]


@pytest.mark.parametrize(
    "context",
    [
        ENVIRONMENT,
        "  <ENVIRONMENT_CONTEXT>\n</ENVIRONMENT_CONTEXT>",
        "<subagent_notification>\n{}\n</subagent_notification>",
        "<turn_aborted>\nstopped\n</turn_aborted>",
        "<user_shell_command>\nls\n</user_shell_command>",
        "<extension_context>\nx\n</extension_context>",
        "<goal_context>\nx\n</goal_context>",
        "<external_notes>\nx\n</external_notes>",
        '<hook_prompt hook_run_id="1">x</hook_prompt>',
        "Warning: apply_patch was requested via exec_command. Use the apply_patch tool instead.",
    ],
)
def test_what_codex_says_in_the_users_role_is_no_turn(context: str) -> None:
    lines = [said("user", "kept"), said("assistant", "a"), said("user", "dropped")]
    lines += [said("assistant", "b"), said("user", context), rolled_back(1)]
    assert asked(lines) == ["kept", "a"]


def test_context_right_before_a_turn_goes_with_it() -> None:
    update = item(
        type="message",
        role="developer",
        content=[{"type": "input_text", "text": "<model_switch>\nother\n</model_switch>"}],
    )
    lines = [said("developer", "rules"), said("user", ENVIRONMENT), said("user", "kept")]
    lines += [said("assistant", "a"), update, said("user", ENVIRONMENT), said("user", "dropped")]
    assert asked([*lines, rolled_back(1)]) == ["rules", ENVIRONMENT, "kept", "a"]
    assert asked([*lines, rolled_back(9)]) == ["rules", ENVIRONMENT]


def test_a_developers_own_words_stay() -> None:
    lines = [said("user", "kept"), said("assistant", "a"), said("developer", "mind the tests")]
    lines += [said("user", "dropped"), rolled_back(1)]
    assert asked(lines) == ["kept", "a", "mind the tests"]


def test_what_the_user_pasted_is_a_turn_where_the_writer_says_so() -> None:
    pasted = item(
        type="message",
        role="user",
        content=[{"type": "input_text", "text": ENVIRONMENT}],
        internal_chat_message_metadata_passthrough={"content_item_kinds": ["user.text"]},
    )
    lines = [said("user", "kept"), said("assistant", "a"), pasted, said("assistant", "b")]
    assert asked([*lines, rolled_back(1)]) == ["kept", "a"]


def test_two_messages_of_one_turn_are_two() -> None:
    """The second was said while the model worked."""
    lines = [said("user", "first"), said("user", "and this"), said("assistant", "b")]
    assert asked([*lines, rolled_back(1)]) == ["first"]


def test_what_another_agent_asks_is_a_turn() -> None:
    told = {"author": "/root", "recipient": "/root/a", "content": "more", "trigger_turn": True}
    task = item(
        type="agent_message",
        author="/root",
        recipient="/root/a",
        content=[{"type": "input_text", "text": "find it"}],
    )
    for later in (line("inter_agent_communication", **told), task):
        lines = [task, said("assistant", "found"), later, said("assistant", "fixed")]
        assert asked([*lines, rolled_back(1)]) == ["find it", "found"]


def test_a_rollback_before_any_turn_takes_nothing() -> None:
    assert asked([said("user", ENVIRONMENT), rolled_back(1), said("user", "hi")]) == [
        ENVIRONMENT,
        "hi",
    ]


def test_rollbacks_in_a_row_count_what_is_left() -> None:
    lines = []
    for text in ("a", "b", "c"):
        lines += [said("user", text), said("assistant", f"on {text}")]
    assert asked([*lines, rolled_back(1), rolled_back(1)]) == ["a", "on a"]
