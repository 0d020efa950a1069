"""Files of which a part is in another one: how much and where, and taking it from there."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from pathlib import Path

import pytest
from imported_session import told_texts
from test_foreign_claude import TEXT, assistant, user

from walld.cli.session.follow import followed
from walld.errors import NotUnderstood
from walld.foreign import claude, codex
from walld.foreign.detect import read


def line(ordinal: int | None, kind: str, **payload: object) -> str:
    value = {"timestamp": "2026-10-01T10:00:00.000Z", "type": kind, "payload": payload}
    return json.dumps(value | ({} if ordinal is None else {"ordinal": ordinal})) + "\n"


def meta(ordinal: int | None, thread: str, base: dict[str, object] | None = None) -> str:
    more = {} if base is None else {"history_base": base}
    return line(ordinal, "session_meta", id=thread, history_mode="paginated", **more)


def base(thread: str, end: int) -> dict[str, object]:
    return {"thread_id": thread, "end_ordinal_exclusive": end, "end_byte_offset": 9 * end}


def said(ordinal: int | None, role: str, text: str) -> str:
    content = [{"type": "input_text", "text": text}]
    return line(ordinal, "response_item", type="message", role=role, content=content)


def thread(name: str, first: int, *texts: str, of: dict[str, object] | None = None) -> list[str]:
    spoken = [
        said(first + 1 + place, ("user", "assistant")[place % 2], text)
        for place, text in enumerate(texts)
    ]
    return [meta(first, name, of), *spoken]


def test_what_a_history_base_holds_is_missing() -> None:
    imported = codex.read(thread("b", 40, "second half", "done", of=base("a", 40)))
    assert imported.elsewhere == [{"ordinals": [0, 39], "thread": "a", "bytes": 360}]
    assert imported.not_understood == 0


def test_a_first_ordinal_above_zero_is_missing_in_a_place_that_nobody_names() -> None:
    assert codex.read(thread("b", 7, "hi")).elsewhere == [{"ordinals": [0, 6]}]
    assert codex.read(thread("b", 0, "hi", "ho")).elsewhere == []


def test_a_hole_behind_the_base_is_missing_beside_it() -> None:
    imported = codex.read(thread("b", 44, "hi", of=base("a", 40)))
    assert imported.elsewhere == [
        {"ordinals": [0, 39], "thread": "a", "bytes": 360},
        {"ordinals": [40, 43]},
    ]


def test_a_hole_in_the_middle_is_missing() -> None:
    lines = thread("b", 0, "a", "b", "c", "d")
    assert codex.read([*lines[:2], *lines[4:]]).elsewhere == [{"ordinals": [2, 3]}]
    damaged = codex.read([*lines[:2], "{broken\n", "{broken too\n", *lines[4:]])
    assert (damaged.elsewhere, damaged.not_understood) == ([], 2)


def test_a_base_without_ordinals_of_its_own() -> None:
    lines = [meta(None, "b", base("a", 3)), said(None, "user", "hi")]
    assert codex.read(lines).elsewhere == [{"ordinals": [0, 2], "thread": "a", "bytes": 27}]


def fork_context(session: str, until: str, count: object = 2) -> str:
    told = {"type": "fork-context-ref", "agentId": "a1", "parentSessionId": session}
    return json.dumps(told | {"parentLastUuid": until, "contextLength": count}) + "\n"


def agent(*parents: str | None) -> list[str]:
    about = {"isSidechain": True, "agentId": "a1"}
    return [
        fork_context("s", "a"),
        user("u9", parents[0] if parents else None, "now the rest", **about),
        assistant("a9", "u9", "m9", {"type": "text", "text": "rested"}, **about),
    ]


def test_the_context_of_a_forked_agent_is_missing() -> None:
    imported = claude.read(agent())
    assert imported.elsewhere == [{"messages": 2, "session": "s", "until": "a"}]
    assert [text for _, text in told_texts(imported)] == ["now the rest", "rested"]


@pytest.mark.parametrize("count", [None, -1, True, "2", 10**30])
def test_a_count_that_is_none_is_left_out(count: object) -> None:
    (told,) = claude.read([fork_context("s", "a", count), *agent()[1:]]).elsewhere
    assert told == {"session": "s", "until": "a"} | ({"messages": count} if count == 10**30 else {})


# --- where it is beside the file ------------------------------------------------------------------


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return path


def texts(path: Path) -> list[str]:
    with path.open("rb") as file:
        imported = read(followed(file, str(path)), "auto")
    assert imported.elsewhere == []
    assert imported.not_understood == 0
    return [text for _, text in told_texts(imported, "plain")]


def test_a_base_and_its_base_are_taken_from_beside(tmp_path: Path) -> None:
    write(tmp_path / "rollout-1-aa.jsonl", thread("aa", 0, "one", "two", "left out"))
    write(tmp_path / "rollout-2-bb.jsonl", thread("bb", 3, "three", "and not", of=base("aa", 3)))
    own = thread("cc", 5, "four", of=base("bb", 5))
    path = write(tmp_path / "rollout-3-cc.jsonl", own)
    assert texts(path) == ["one", "two", "three", "four"]


def test_a_base_of_another_day_and_of_any_name(tmp_path: Path) -> None:
    """In the tree that Codex keeps, and in a folder that somebody made."""
    write(tmp_path / "2026/09/30/rollout-1-aa.jsonl", thread("aa", 0, "one", "two"))
    own = thread("bb", 3, "three", of=base("aa", 3))
    assert texts(write(tmp_path / "2026/10/01/rollout-2-bb.jsonl", own)) == ["one", "two", "three"]
    write(tmp_path / "mine/old.jsonl", thread("aa", 0, "uno", "dos"))
    write(tmp_path / "mine/aa.jsonl", thread("another", 0, "nobody's"))
    assert texts(write(tmp_path / "mine/new.jsonl", own)) == ["uno", "dos", "three"]


def test_a_base_that_is_compressed(tmp_path: Path) -> None:
    """So does Codex with what nobody has written to for long."""
    own = thread("bb", 3, "three", of=base("aa", 3))
    of_base = "".join(thread("aa", 0, "one", "two")).encode()
    for ending, pack in {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}.items():
        folder = tmp_path / ending
        path = write(folder / "2026/10/01/rollout-2-bb.jsonl", own)
        (folder / "2026/10/01/other.jsonl.gz").write_bytes(b"\x1f\x8b damaged")
        beside = folder / "2026/10/01" / f"rollout-1-aa.jsonl.{ending}"
        beside.write_bytes(pack(of_base))
        assert texts(path) == ["one", "two", "three"]
        beside.unlink()
        older = folder / "2026/09/30" / f"rollout-1-aa.jsonl.{ending}"
        older.parent.mkdir(parents=True)
        older.write_bytes(pack(of_base))
        assert texts(path) == ["one", "two", "three"]


def test_a_base_that_cannot_be_unpacked_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    path = write(tmp_path / "rollout-2-bb.jsonl", thread("bb", 3, "three", of=base("aa", 3)))
    (tmp_path / "rollout-1-aa.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x04\x60\xbd\x19")
    with pytest.raises(NotUnderstood, match=r"rollout-1-aa\.jsonl\.zst: .*zstd"):
        texts(path)


def test_what_is_not_there_stays_missing(tmp_path: Path) -> None:
    lost = write(tmp_path / "b.jsonl", thread("b", 3, "three", of=base("a", 3)))
    circle = write(tmp_path / "c.jsonl", thread("c", 3, "three", of=base("c", 3)))
    for path in (lost, circle):
        with path.open("rb") as file:
            imported = codex.read(followed(file, str(path)))
        assert [one["ordinals"] for one in imported.elsewhere] == [[0, 2]]
        assert [text for _, text in told_texts(imported)] == ["three"]


def test_the_context_of_a_forked_agent_is_taken_from_its_session(tmp_path: Path) -> None:
    session = [user("u", None, "hi"), assistant("a", "u", "m1", TEXT), user("v", "a", "later")]
    write(tmp_path / "s.jsonl", session)
    for place, parent in (("s/subagents/agent-a1.jsonl", None), ("agent-a1.jsonl", "a")):
        path = write(tmp_path / place, agent(parent))
        assert texts(path) == ["hi", "hello", "now the rest", "rested"]


def test_a_file_that_holds_all_is_read_as_it_is(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.jsonl", thread("a", 0, "one"))) == ["one"]
