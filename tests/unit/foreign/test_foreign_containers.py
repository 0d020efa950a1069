"""Files of which nothing is understood, and records of types that nobody knew yet."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import test_foreign_claude
import test_foreign_codex
import test_foreign_gptme
import test_foreign_pi

from walld.errors import NotUnderstood
from walld.foreign.detect import FORMATS, read

GPTME = test_foreign_gptme.lines(test_foreign_gptme.ONE, test_foreign_gptme.TWO)
CODEX = [test_foreign_codex.line("session_meta", id="s"), test_foreign_codex.said("user", "hi")]
CLAUDE = [test_foreign_claude.user("u", None, "hi")]
PI = test_foreign_pi.lines(
    test_foreign_pi.header(), test_foreign_pi.entry("a", None, message=test_foreign_pi.user("hi"))
)
OWN = ['{"walld":1,"last_seq":1}\n', '{"seq":1,"id":"a","type":"note","payload":{}}\n']
WRITTEN = {"gptme": GPTME, "codex": CODEX, "claude": CLAUDE, "pi": PI, "walld": OWN}
TEXT = "".join(CODEX)


def database() -> bytes:
    made = sqlite3.connect(":memory:")
    made.execute("create table items (id, item)")
    return made.serialize()


@pytest.mark.parametrize("name", ["auto", *FORMATS])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x28\xb5\x2f\xfd\x04\x60\xbd\x19\x00\x06", "zstd"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip"),
        (b"\xfd7zXZ\x00\x00\x04", "xz"),
        (b"BZh91AY&SY\x00", "bzip2"),
        (b"\x04\x22\x4d\x18\x64\x40", "lz4"),
        (b"PK\x03\x04\x14\x00\x00\x00", "zip"),
        (TEXT.encode("utf-16"), "UTF-16"),
        (TEXT.encode("utf-16-le"), "UTF-16"),
        (TEXT.encode("utf-16-be"), "UTF-16"),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "UTF-16"),
        (TEXT.encode("utf-32"), "UTF-32"),
        (database(), "SQLite"),
        (b"\x00" * 5000, "zeros"),
        (b"%PDF-1.7\n%\xe2\xe3\n", "PDF"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "PNG"),
        (b"<!DOCTYPE html>\n<html></html>\n", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS"),
        (json.dumps([json.loads(line) for line in GPTME]).encode(), "a JSON array"),
        (json.dumps([json.loads(line) for line in CODEX], indent=2).encode(), "a JSON array"),
        (b"[" + b",".join(line.strip().encode() for line in PI) + b"]\n", "a JSON array"),
        (json.dumps({"messages": [{"a": 1}], "title": "t"}).encode(), "JSON object.*messages"),
        (json.dumps({"messages": [1], "title": "t"}, indent=1).encode(), "JSON object.*messages"),
        (b"# Notes\n\nThe quick brown fox.\n", "text"),
        (b"\x00\x01\x02\x80\xff\xfe\x03" * 50, "no text"),
    ],
)
def test_what_the_bytes_are_is_said_whatever_the_format(name: str, content: bytes, told: str):
    with pytest.raises(NotUnderstood, match=told):
        read(content.splitlines(keepends=True), name)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("written", WRITTEN)
def test_a_format_that_is_another_says_which_it_is(name: str, written: str):
    if name == written:
        assert read(WRITTEN[written], name).entries
        return
    with pytest.raises(NotUnderstood, match=f"{name}.*{written}"):
        read(WRITTEN[written], name)


@pytest.mark.parametrize("name", ["auto", *FORMATS])
@pytest.mark.parametrize("content", ["", "\n", " \r\n\n", "\ufeff"])
def test_nothing_is_no_session(name: str, content: str):
    with pytest.raises(NotUnderstood, match="there is no line in it"):
        read(content.splitlines(keepends=True), name)


@pytest.mark.parametrize("written", WRITTEN)
def test_one_line_that_is_understood_is_enough(written: str):
    found = read(["\x00\x00\n", "[1]\n", *WRITTEN[written], "what\n"], written)
    assert found.not_understood == 3


@pytest.mark.parametrize(
    ("lines", "types"),
    [
        (CODEX + [test_foreign_codex.line("new_one", a=1)] * 3, {"new_one": 3}),
        (
            [*CODEX, test_foreign_codex.line("response_item", type="dream", a=1)],
            {"response_item.dream": 1},
        ),
        (
            [*CLAUDE, '{"type":"day-one","sessionId":"s"}\n', '{"type":"b"}\n'],
            {"b": 1, "day-one": 1},
        ),
        ([*PI, *test_foreign_pi.lines(test_foreign_pi.entry("b", "a", "new"))], {"new": 1}),
        (
            test_foreign_gptme.lines(
                test_foreign_gptme.event(1, "message_append", message=test_foreign_gptme.ONE),
                test_foreign_gptme.event(2, "merge", x=1),
            ),
            {"merge": 1},
        ),
    ],
)
def test_types_that_nobody_knew_are_counted_by_type(lines: list[str], types: dict[str, int]):
    found = read(lines)
    assert found.unknown_types == types
    assert found.reasons == {"unknown_type": sum(types.values())}


@pytest.mark.parametrize(
    "kind",
    [
        *("cost-state", "atis-latch", "relocated", "frame-link", "artifact-autoreact-ledger"),
        *("artifact-comment-monitor", "ended-by-model", "isolation-latch", "observer-ref"),
        *("history-suppression", "marble-origami-snapshot", "session-name", "started", "result"),
    ],
)
def test_what_claude_code_writes_this_autumn_is_known(kind: str):
    found = read([*CLAUDE, json.dumps({"type": kind, "sessionId": "s"}) + "\n"])
    assert (found.reasons, found.entries[-1].type) == ({}, f"claude.{kind}")


@pytest.mark.parametrize(
    "kind", ["token_usage_record", "retained_context", "security_risk_score", "realtime_item"]
)
def test_what_codex_writes_this_autumn_is_known(kind: str):
    found = read([*CODEX, test_foreign_codex.line(kind, id="x", thread_id="t")])
    assert (found.reasons, found.entries[-1].type) == ({}, f"codex.{kind}")


def test_a_file_of_nothing_but_what_is_known_beside_messages_is_a_session():
    found = read(['{"type":"cost-state","sessionId":"s"}\n', '{"type":"summary","summary":"s"}\n'])
    assert (found.format, found.reasons) == ("claude", {})


@pytest.mark.parametrize(
    "copy", [lambda lines: lines, lambda lines: ["\ufeff" + lines[0], *lines[1:]]]
)
def test_a_mark_of_utf_8_is_no_other_encoding(copy: Callable[[list[str]], list[str]]):
    assert read(copy(CODEX)).reasons == {}


def test_a_session_on_disk_that_is_a_text_of_another_code_is_read(tmp_path: Path):
    text = CODEX[1].replace("hi", "fianc\xe9").encode("latin-1")
    assert read([CODEX[0].encode(), text]).reasons == {}
