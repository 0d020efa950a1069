"""What a provider is sent: in which order, and the shapes messages come in."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from walld_client.recovered.provider import anthropic_messages, in_format, openai_messages

CALL = {"id": "c1", "name": "bash", "arguments": '{"x": 1}'}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = "", *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def result(content: Any = "ok", call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def openai_call(call_id: str = "c1", arguments: str = '{"x": 1}') -> dict[str, Any]:
    function = {"name": "bash", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def test_a_call_and_its_result() -> None:
    told = [user("q"), assistant("let me", CALL), result(), assistant("done ")]
    assert openai_messages(told) == [
        user("q"),
        {"role": "assistant", "content": "let me", "tool_calls": [openai_call()]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": "done"},
    ]
    assert anthropic_messages(told) == [
        user([{"type": "text", "text": "q"}]),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"x": 1}},
            ],
        },
        user([{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]),
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]


@pytest.mark.parametrize(
    "call",
    [
        CALL | {"outcome": "done", "result": "ok"},
        openai_call(),
        {"id": "c1", "type": "tool_use", "name": "bash", "input": {"x": 1}},
    ],
)
def test_each_shape_of_a_call_is_sent_the_same(call: dict[str, Any]) -> None:
    if call.get("type") == "tool_use":
        block = {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "text", "text": "ok"}],
        }
        told = [assistant([call]), user([block, {"type": "text", "text": "and?"}])]
    else:
        told = [assistant("", call), *([] if "outcome" in call else [result()]), user("and?")]
    sent = openai_messages(told)
    assert sent[0]["tool_calls"] == [openai_call()]
    assert sent[1:] == [{"role": "tool", "tool_call_id": "c1", "content": "ok"}, user("and?")]


@pytest.mark.parametrize(
    "interrupted",
    [
        [],
        [assistant("a partial", _wal_recovered=True, reasoning="secret")],
        [assistant("", CALL)],
        [result(call_id="c9")],
        [assistant(None, CALL | {"name": None}), result()],
        [assistant("", CALL | {"arguments": {"_artifact": {}}}), result()],
        [assistant([{"type": "thinking", "thinking": "secret", "signature": "s"}],
                   _wal_recovered=True)],
        [{"role": "note", "content": "secret"}],
    ],
)  # fmt: skip
def test_no_equal_roles_and_no_orphan(interrupted: list[dict[str, Any]]) -> None:
    told = [user("one"), *interrupted, user("two"), assistant("x"), assistant("y")]
    for sent in (openai_messages(told), anthropic_messages(told)):
        assert all(one["role"] != two["role"] for one, two in pairwise(sent))
        assert {one["role"] for one in sent} == {"user", "assistant"}
        for word in ("secret", "c1", "c9"):
            assert word not in str(sent)
        for word in ("one", "two", "x", "y"):
            assert word in str(sent)


INPUTS = [
    ("*** Begin Patch\n", {"input": "*** Begin Patch\n"}),
    (["ls", "-l"], {"input": ["ls", "-l"]}),
    ('["ls"]', {"input": ["ls"]}),
    (5, {"input": 5}),
    (False, {"input": False}),
    ('"text"', {"input": "text"}),
    ("{ f(); }", {"input": "{ f(); }"}),
    ('{"a": 1', {"input": '{"a": 1', "note": "cut: the rest of it was not recorded"}),
    ("null", {}),
]


@pytest.mark.parametrize(("given", "sent"), INPUTS)
def test_arguments_that_are_no_object_are_the_input_of_one(given: Any, sent: Any) -> None:
    """Tools of OpenAI's that take a text, and what programs give theirs."""
    told = [user("q"), assistant("", CALL | {"arguments": given}), result()]
    (call,) = openai_messages(told)[1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == sent
    assert anthropic_messages(told)[1]["content"][0]["input"] == sent


def test_a_text_that_is_no_object_is_whole() -> None:
    texts = {"*** Begin Patch": True, "[1": True, '{"a": 1': False, '{"a": NaN}': False}
    for text, is_whole in texts.items():
        (plain,) = in_format([assistant("", CALL | {"arguments": text})], "plain")
        assert plain["tool_calls"][0]["arguments_complete"] is is_whole


def test_a_result_that_came_late_stands_with_its_call() -> None:
    sent = openai_messages([assistant("", CALL), user("still there?"), result()])
    assert [one["role"] for one in sent] == ["assistant", "tool", "user"]


def test_a_call_id_that_comes_again_is_another_call() -> None:
    sent = openai_messages([assistant("", CALL), result("1"), assistant("", CALL), result("2")])
    ids = [one["tool_calls"][0]["id"] for one in sent if one["role"] == "assistant"]
    assert ids[0] == "c1"
    assert ids[1].startswith("call_")
    answered = {one["tool_call_id"]: one["content"] for one in sent if one["role"] == "tool"}
    assert answered == {ids[0]: "1", ids[1]: "2"}
    unanswered = openai_messages([assistant("", CALL), assistant("", CALL), result("2")])
    assert [one["content"] for one in unanswered] == [None, "2"]


@pytest.mark.parametrize("is_one_message", [True, False])
def test_results_of_calls_of_one_id_go_to_them_in_order(is_one_message: bool) -> None:
    """Of as many of them as there are results, the newest."""

    def answers(*told: dict[str, Any]) -> list[Any]:
        sent = openai_messages([user("q"), *told, user("and?")])
        ids = [call["id"] for one in sent for call in one.get("tool_calls", ())]
        assert ids == [one["tool_call_id"] for one in sent if one["role"] == "tool"]
        return [one["content"] for one in sent if one["role"] == "tool"]

    calls = [CALL | {"arguments": f'{{"x": {number}}}'} for number in range(3)]
    said = [assistant("", *calls)] if is_one_message else [assistant("", one) for one in calls]
    given = [result(str(number)) for number in range(4)]
    assert answers(*said, *given[:3]) == ["0", "1", "2"]
    assert answers(*said, *given) == ["0", "1", "2"], "the last has no call"
    assert answers(*said, *given[:1]) == ["0"]
    assert answers(*said, *given[:2]) == ["0", "1"]
    late = [assistant("", CALL), given[2], given[3]]
    assert answers(*said, *given[:2], *late) == ["3", "0", "1", "2"], "the first has the late one"
    broken = assistant("", CALL, CALL | {"name": None})
    assert answers(broken, *given[:2]) == ["0"], "the other is of the call that is not sent"
    of_turns = [assistant("", CALL | {"turn": turn}) for turn in ("t1", "t2")]
    assert answers(*of_turns, *given[:2]) == ["1", "0"], "of the newest turn first"


def test_ids_and_names_are_what_providers_take() -> None:
    call = CALL | {"id": "fn:1/é", "name": "my tool!"}
    sent = openai_messages([assistant("", call), result(call_id="fn:1/é")])
    told = sent[0]["tool_calls"][0]
    assert told["id"] == sent[1]["tool_call_id"]
    assert told["id"].startswith("call_")
    assert told["function"]["name"] == "my_tool_"


def test_system_messages() -> None:
    told = [
        {"role": "system", "content": "be"},
        {"role": "developer", "content": "kind"},
        user("q"),
    ]
    assert openai_messages(told)[0] == {"role": "system", "content": "be\n\nkind"}
    (sent,) = anthropic_messages(told)
    assert [block["text"] for block in sent["content"]] == ["<system>\nbe\n\nkind\n</system>", "q"]


PIXEL = "data:image/png;base64,AAAA"
HELD = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "image_url", "image_url": PIXEL},
        {"type": "input_image", "image_url": PIXEL},
        {"type": "image", "source": HELD},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ],
)
def test_a_picture_of_any_dialect_is_one_of_the_providers(block: dict[str, Any]) -> None:
    told = [user([block, {"type": "text", "text": " "}, {"type": "input_text", "text": "see"}])]
    see = {"type": "text", "text": "see"}
    picture = {"type": "image_url", "image_url": {"url": PIXEL}}
    assert openai_messages(told) == [user([picture, see])]
    assert anthropic_messages(told) == [user([{"type": "image", "source": HELD}, see])]


def test_a_picture_elsewhere_is_its_url() -> None:
    url = "https://example.org/p.png"
    detailed = {"type": "input_image", "image_url": url, "detail": "low"}
    source = {"type": "url", "url": url}
    (sent,) = openai_messages([user([detailed])])
    assert sent["content"] == [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]
    assert anthropic_messages([user([detailed])]) == [user([{"type": "image", "source": source}])]
    (sent,) = openai_messages([user([{"type": "image", "source": source}])])
    assert sent["content"][0]["image_url"] == {"url": url}
    at_the_provider = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    assert anthropic_messages([user([at_the_provider])]) == [user([at_the_provider])]
    assert openai_messages([user([at_the_provider])]) == [user("[picture: not shown]")]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": 7},
        {"type": "input_image"},
        {"type": "image", "data": "AAAA"},
        {"type": "app.chart", "rows": [1]},
    ],
)
def test_a_block_that_no_provider_takes_is_a_note(block: dict[str, Any]) -> None:
    for sent in (openai_messages([user([block])]), anthropic_messages([user([block])])):
        assert "not shown]" in str(sent)
        assert "AAAA" not in str(sent)
        assert "rows" not in str(sent)


def test_a_block_of_one_provider_alone_goes_to_that_one() -> None:
    document = {"type": "document", "source": HELD}
    assert anthropic_messages([user([document])]) == [user([document])]
    assert openai_messages([user([document])]) == [user("[document: not shown]")]
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    assert openai_messages([user([audio])]) == [user([audio])]


def test_empty_text_is_no_message() -> None:
    assert openai_messages([user(""), assistant(" \n")]) == []


@pytest.mark.parametrize("content", [{"a": 1}, 42, True, 0, [42], [[1]], [{"foo": 1}], {}, [False]])
def test_content_that_is_no_block_at_all_is_a_note(content: Any) -> None:
    told = "[content: not shown]"
    assert openai_messages([user("before"), user(content)]) == [user(f"before\n\n{told}")]
    assert anthropic_messages([user(content)]) == [user([{"type": "text", "text": told}])]
    mixed = [{"type": "text", "text": "seen"}, {"type": "text", "text": 5}, None]
    assert openai_messages([user(mixed)]) == [user(f"seen\n\n{told}")]
    assert openai_messages([user("q"), assistant(content)]) == [user("q")]  # the user's alone


def test_the_words_of_openais_responses_are_text() -> None:
    told = [
        {"role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        user([{"type": "input_text", "text": "q"}]),
        assistant([{"type": "output_text", "text": "let me"}], CALL),
        result([{"type": "output_text", "text": "seen"}]),
        assistant([{"type": "output_text", "text": "done"}]),
    ]
    texts = ["rules", "q", "let me", "seen", "done"]
    assert [one["content"] for one in openai_messages(told)] == texts
    sent = anthropic_messages(told)
    assert [one["role"] for one in sent] == ["user", "assistant", "user", "assistant"]
    assert sent[-1]["content"] == [{"type": "text", "text": "done"}]


def test_a_result_with_a_picture_is_its_text_and_a_note() -> None:
    shown = [{"type": "text", "text": "ok"}, {"type": "image", "source": HELD}]
    sent = openai_messages([assistant("", CALL), result(shown)])
    assert sent[-1]["content"] == "ok\n[picture: not shown]"


def test_a_picture_that_a_tool_gave_goes_to_anthropic() -> None:
    """It takes pictures in the result of a call; in that of one that failed text alone."""
    mcp = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    sent = {"type": "image", "source": HELD}
    for told in (mcp, sent, {"type": "input_image", "image_url": PIXEL}):
        shown = [{"type": "text", "text": "ok"}, told]
        within = {**CALL, "outcome": "done", "result": shown}
        for messages in ([assistant("", CALL), result(shown)], [assistant("", within)]):
            (block,) = anthropic_messages(messages)[-1]["content"]
            assert block["content"] == [{"type": "text", "text": "ok"}, sent]
            assert openai_messages(messages)[-1]["content"] == "ok\n[picture: not shown]"
        (block,) = anthropic_messages([assistant("", CALL), result(shown, is_error=True)])[-1][
            "content"
        ]
        assert (block["is_error"], block["content"]) == (True, "ok\n[picture: not shown]")
    (block,) = anthropic_messages([assistant("", CALL), result([mcp, {"type": "app.chart"}])])[-1][
        "content"
    ]
    assert "app.chart" in block["content"], "what is not text and pictures is JSON, as before"


def test_bytes_that_anthropic_takes_for_no_picture_are_a_note() -> None:
    """It refuses the request for them."""
    drawn = {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"}
    note = {"type": "text", "text": "[picture: not shown]"}
    assert anthropic_messages([user([drawn])]) == [user([note])]
    (block,) = anthropic_messages([assistant("", CALL), result([drawn])])[-1]["content"]
    assert block["content"] == note["text"]


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"type": ["base64"]},
        {"type": "base64", "media_type": ["image/png"], "data": "AAAA"},
        {"type": "base64", "media_type": {}, "data": "AAAA"},
        {"type": "base64", "media_type": "image/png"},
        {"type": "base64", "media_type": "image/png", "data": ["AAAA"]},
        {"type": "url"},
        {"type": "url", "url": "data:image/png;charset=x;base64,AAAA"},
    ],
)
def test_what_is_no_picture_of_anthropics_is_a_note(source: dict[str, Any]) -> None:
    """All of the messages would not be given, or refused, for it."""
    drawn = {"type": "image", "source": source}
    note = {"type": "text", "text": "[picture: not shown]"}
    assert anthropic_messages([user([drawn])]) == [user([note])]
    (block,) = anthropic_messages([assistant("", CALL), result(["ok", drawn])])[-1]["content"]
    assert block["content"] == "ok\n[picture: not shown]"


def test_signed_thinking_goes_to_anthropic_alone() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "text", "text": "a"},
    ]
    _, sent = anthropic_messages([assistant(blocks)])  # the user begins
    assert sent["content"] == [blocks[0], blocks[2]]
    assert openai_messages([assistant(blocks)]) == [{"role": "assistant", "content": "a"}]


def test_a_failed_or_empty_result() -> None:
    told = [assistant("", CALL), result("", is_error=True)]
    (block,) = anthropic_messages(told)[-1]["content"]
    assert block == {"type": "tool_result", "tool_use_id": "c1", "content": '""', "is_error": True}


def test_half_characters_are_replaced() -> None:
    assert openai_messages([user("a\ud83d")]) == [user("a�")]


ARTIFACT = {"sha256": "0" * 64, "size": 400_000, "media_type": "text/plain", "preview": "it began"}


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_content_beside_the_session_is_its_beginning_and_a_note(role: str) -> None:
    note = "it began\n[artifact, 400000 bytes: only its beginning is shown]"
    told = [{"role": role, "content": {"_artifact": ARTIFACT}}]
    (sent,) = openai_messages(told)
    assert sent == {"role": role, "content": note}
    (block,) = anthropic_messages(told)[-1]["content"]
    assert note in block["text"]


def test_an_artifact_without_a_preview_is_named() -> None:
    picture = {"sha256": "0" * 64, "size": 9, "media_type": "image/png", "name": "p.png"}
    (sent,) = openai_messages([user([{"_artifact": picture}, {"type": "text", "text": "see"}])])
    assert sent["content"] == "[artifact p.png, 9 bytes: not shown]\n\nsee"
    for broken in ({}, {"size": "x", "preview": 1, "name": []}):
        (sent,) = openai_messages([user({"_artifact": broken})])
        assert sent["content"] == "[artifact: not shown]"


def test_what_is_attached_to_a_message_is_a_note_that_it_was_there() -> None:
    picture = {"sha256": "0" * 64, "size": 9, "media_type": "image/png", "name": "p.png"}
    own: list[Any] = [{"type": "file", "name": "a\ud800.pdf"}, {"url": "x", "name": ""}, "b", None]
    told = user("what is on it?") | {"attachments": [{"_artifact": picture}, *own]}
    notes = ["[artifact p.png, 9 bytes: not shown]", "[attachment a\ufffd.pdf: not shown]"]
    notes += ["[attachment: not shown]"] * 3
    assert openai_messages([told]) == [user("\n\n".join(["what is on it?", *notes]))]
    (sent,) = anthropic_messages([told])
    assert [block["text"] for block in sent["content"]] == ["what is on it?", *notes]
    # A message may be nothing but what is attached to it; what is no list of such is nobody's.
    assert openai_messages([user("") | {"attachments": ["b"]}]) == [user(notes[-1])]
    assert openai_messages([user("q") | {"attachments": {"a": 1}}]) == [user("q")]
    assert openai_messages([assistant("a") | {"attachments": ["b"]}])[0]["content"] == "a"


def test_a_result_beside_the_session_is_its_beginning() -> None:
    told = [user("q"), assistant("", CALL), result({"_artifact": ARTIFACT})]
    assert openai_messages(told)[-1]["content"].startswith("it began\n[artifact")


def test_text_behind_a_block_of_a_call_is_the_next_message() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    content = [{"type": "text", "text": "Now"}, use, {"type": "text", "text": "I fix."}]
    told = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": content},
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    ]
    sent = [(one["role"], one["content"]) for one in openai_messages(told)]
    assert sent == [("user", "q"), ("assistant", "Now"), ("tool", "seen"), ("assistant", "I fix.")]
    told[2]["tool_call_id"] = "another"
    assert [one["content"] for one in openai_messages(told)] == ["q", "Now\n\nI fix."]


def test_of_a_cut_text_what_stands_before_the_last_call_that_is_sent_goes() -> None:
    calls = [
        {"id": f"c{at}", "name": "look", "arguments": "{}", "at": at, "outcome": outcome}
        for at, outcome in ((1, "done"), (2, "unknown"))
    ]
    told = {"role": "assistant", "content": "abc", "tool_calls": calls, "_wal_cut": True}
    sent = openai_messages([{"role": "user", "content": "q"}, told])
    assert [one["content"] for one in sent] == ["q", "a", "null"]
    calls[0]["outcome"] = "unknown"
    assert len(openai_messages([{"role": "user", "content": "q"}, told])) == 1
    told.pop("_wal_cut")
    assert len(openai_messages([{"role": "user", "content": "q"}, told])) == 2


@pytest.mark.parametrize("chosen", [{}, {"observed": True}, {"synthetic": "denied"}])
def test_a_long_result_goes_in_halves_unless_somebody_chose_the_words(
    chosen: dict[str, Any],
) -> None:
    long = "a" * 20_000 + "b" * 20_000
    item = {"id": "c", "name": "look", "arguments": {}, "outcome": "done", "result": long}
    told = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [item | chosen]}]
    (*_, result) = openai_messages(told)
    if chosen:
        assert result["content"] == long
        return
    half = "a" * 8192, "b" * 8192
    left_out = "[... 23,616 of 40,000 characters left out"
    assert result["content"] == f"{half[0]}\n{left_out}]\n{half[1]}"
    told[1]["tool_calls"] = [item | {"_result_sha256": "ab12"}]
    (*_, result) = openai_messages(told)
    assert result["content"] == f"{half[0]}\n{left_out}; whole: artifact sha256:ab12]\n{half[1]}"
    told[1]["tool_calls"] = [item | {"result": long[:16_384]}]
    assert openai_messages(told)[-1]["content"] == long[:16_384]


def said_around(content: str, *places: int, **more: Any) -> dict[str, Any]:
    calls = [CALL | {"id": f"c{number}", "at": at} for number, at in enumerate(places)]
    return assistant(content, *(call | {"outcome": "done"} | more for call in calls))


@pytest.mark.parametrize(
    ("content", "places", "told"),
    [
        ("NowI fix.", [3], "Now\n\nI fix."),
        ("NowI fix.", [3, 3], "Now\n\nI fix."),
        ("NowI fix.Done.", [3, 9], "Now\n\nI fix.\n\nDone."),
        ("Now I fix.", [3], "Now I fix."),
        ("Now I fix.", [4], "Now I fix."),
        ("Now", [0, 3], "Now"),
        ("Now", [-1, 99], "Now"),
        ("Now", [], "Now"),
    ],
)
def test_text_on_both_sides_of_a_call_is_not_glued(
    content: str, places: list[int], told: str
) -> None:
    """A provider is sent what it was sent before, whoever set it apart, and however often."""
    message = said_around(content, *places)
    kept = deepcopy(message)
    (plain,) = in_format([message], "plain")
    assert (plain["content"], message) == (told, kept)
    assert in_format([plain], "plain") == [plain]
    for at, call in zip(places, plain["tool_calls"], strict=True):
        if 0 <= at <= len(content):
            before, behind = call["at"], call.get("behind", call["at"])
            halves = plain["content"][:before], plain["content"][behind:]
            unglued = [half.replace("\n\n", "") for half in halves]
            assert unglued == [content[:at], content[at:]]
    for send in (openai_messages, anthropic_messages):
        assert send([plain]) == send([message])
    assert in_format([plain], "openai") == openai_messages([message])


def test_a_call_that_is_not_sent_glues_no_text_either() -> None:
    broken = said_around("NowI fix.", 3, name=None)
    for shape in ("plain", "openai"):
        assert in_format([broken], shape)[0]["content"] == "Now\n\nI fix."


def test_no_text_is_lost_where_an_edit_moved_what_stands_around_a_call() -> None:
    (plain,) = in_format([said_around("NowI fix.", 3)], "plain")
    sent = openai_messages([plain | {"content": "Then I do it."}])
    assert [one["content"] for one in sent] == ["The", "null", "n I do it."]
