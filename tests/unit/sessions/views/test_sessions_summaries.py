"""One sentence before a summary says to a provider that it is one; whoever wrote the summary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from session_log import Log
from walld_client.recovered.summaries import OF_A_BRANCH, OF_ALL_BEFORE

from walld.foreign.detect import read
from walld.sessions.gate.fork import forked
from walld.sessions.state.events import Event
from walld.sessions.views.messages import messages

PROVIDERS = ("openai", "anthropic")


def texts(sent: list[dict[str, Any]] | None) -> list[str]:
    """The texts of all that is sent, the pieces of a message one by one."""
    found = []
    for one in sent or []:
        content = one["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        found += [block["text"] for block in blocks if "text" in block]
    return found


def two() -> Log:
    log = Log()
    log.say("user", "a")
    log.say("assistant", "b")
    return log


@pytest.mark.parametrize("format", PROVIDERS)
def test_of_a_compaction(format: str) -> None:  # noqa: A002
    log = two()
    log.add("compaction", {"summary": "short", "first_kept": "e2"})
    assert texts(messages(log.events, format)) == [f"{OF_ALL_BEFORE}\n\nshort", "b"]
    assert [one["content"] for one in messages(log.events) or []] == ["short", "b"]


@pytest.mark.parametrize("format", PROVIDERS)
def test_of_a_branch(format: str) -> None:  # noqa: A002
    log = two()
    log.add("branch_summary", {"target": "e1", "text": "learnt"})
    assert texts(messages(log.events, format)) == ["a", "b", f"{OF_A_BRANCH}\n\nlearnt"]
    assert (messages(log.events) or [])[-1]["content"] == "learnt"


@pytest.mark.parametrize("format", PROVIDERS)
def test_the_application_chose_other_words_for_it(format: str) -> None:  # noqa: A002
    log = two()
    log.add("compaction", {"summary": "short", "first_kept": "e2"})
    log.add("message_edit", {"target": "e3", "message": {"role": "user", "content": "in short"}})
    assert texts(messages(log.events, format)) == ["in short", "b"]


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_whole_list_that_has_no_summary_has_no_sentence(format: str) -> None:  # noqa: A002
    log = two()
    log.add("compaction", {"replacement": [{"role": "user", "content": "short"}]})
    assert texts(messages(log.events, format)) == ["short"]


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_list_of_an_older_import_that_has_its_summary_beside_it(format: str) -> None:  # noqa: A002
    log = two()
    said = [{"role": "user", "content": text} for text in ("kept", "short")]
    log.add("compaction", {"replacement": said, "summary": "short"})
    sent = texts(messages(log.events, format))
    assert "\n\n".join(sent) == f"kept\n\n{OF_ALL_BEFORE}\n\nshort"


@pytest.mark.parametrize("format", PROVIDERS)
def test_an_empty_summary_is_not_sent(format: str) -> None:  # noqa: A002
    log = two()
    log.add("compaction", {"summary": " ", "first_kept": "e2"})
    assert OF_ALL_BEFORE not in json.dumps(messages(log.events, format))


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_summary_that_stands_beside_the_session(format: str) -> None:  # noqa: A002
    log = two()
    whole = {"sha256": "0" * 64, "size": 9000, "preview": "It began"}
    log.add("compaction", {"summary": "It b", "first_kept": "e2", "_artifact": whole})
    assert texts(messages(log.events, format))[0].startswith(f"{OF_ALL_BEFORE}\n\nIt began\n")


PI = [
    {"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-20T10:00:00Z"},
    {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "a"}},
    {"type": "branch_summary", "id": "b", "parentId": "a", "fromId": "a", "summary": "learnt"},
]


def pi(*more: dict[str, Any]) -> list[Event]:
    """A session that such a file was imported into."""
    lines = [json.dumps({"timestamp": ""} | one).encode() + b"\n" for one in (*PI, *more)]
    return events_of(lines)


def events_of(lines: list[bytes]) -> list[Event]:
    log = Log()
    for one in read(lines).entries:
        log.add(one.type, one.payload, id=one.id, parent=one.parent, leaf=one.leaf)
    return log.events


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("kept", ["b", "nowhere"])
def test_of_pi(format: str, kept: str) -> None:  # noqa: A002
    shrunk = {"type": "compaction", "id": "c", "parentId": "b", "summary": "short"}
    events = pi(shrunk | {"firstKeptEntryId": kept})
    learnt = [f"{OF_A_BRANCH}\n\nlearnt"] if kept == "b" else []
    sent = "\n\n".join(texts(messages(events, format)))
    assert sent == "\n\n".join([f"{OF_ALL_BEFORE}\n\nshort", *learnt])


@pytest.mark.parametrize("format", PROVIDERS)
def test_of_a_fork_that_has_not_what_was_kept(format: str) -> None:  # noqa: A002
    log = two()
    log.stand("compaction", {"summary": "short", "first_kept": "nowhere"})
    copies = forked(log.events)
    assert texts(messages(copies, format)) == [f"{OF_ALL_BEFORE}\n\nshort"]


CODEX_SAYS = "Another language model started to solve this problem and produced a summary of it:"


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("has_own", [True, False])
def test_of_codex_where_it_has_no_sentence_of_its_own(format: str, has_own: bool) -> None:  # noqa: A002
    summary = f"{CODEX_SAYS} short" if has_own else "short"
    told = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}
    records = [("response_item", told), ("compacted", {"message": summary})]
    lines = [
        json.dumps({"timestamp": "2026-11-20T10:00:00Z", "type": kind, "payload": payload}).encode()
        for kind, payload in records
    ]
    sent = "\n\n".join(texts(messages(events_of(lines), format)))
    said = summary if has_own else f"{OF_ALL_BEFORE}\n\nshort"
    assert sent == f"q\n\n{said}"


@pytest.mark.parametrize("format", PROVIDERS)
def test_claude_code_has_a_sentence_of_its_own(format: str) -> None:  # noqa: A002
    own = "This session is being continued from a previous conversation: short"
    place = {"sessionId": "s", "timestamp": "2026-11-20T10:00:00Z", "type": "user"}
    lines = [
        json.dumps(place | more | {"message": {"role": "user", "content": text}}).encode()
        for text, more in (
            ("q", {"uuid": "u1", "parentUuid": None}),
            (own, {"uuid": "u2", "parentUuid": "u1", "isCompactSummary": True}),
        )
    ]
    assert texts(messages(events_of(lines), format)) == [own]
