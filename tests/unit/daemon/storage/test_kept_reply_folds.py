"""A long reply is folded on from the last time for views of its session, with text and without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from asking import UID
from virtual_daemon import Home, Peer, Virtual, asked, living, run
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.session_store.reply_messages import unreleased
from walld.daemon.storage.kept_folds import Kept, KeptFolds
from walld.daemon.storage.reply_reader import ReplyReader
from walld.engine.stream import Place, Stream
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.wal import records

WORDS = b"word " * 200


class Asking:
    """Asks for reply "r", and by a fold of all whether that is told."""

    def __init__(self, virtual: Virtual, monkeypatch: pytest.MonkeyPatch) -> None:
        self.virtual = virtual
        self.reader: ReplyReader = virtual.daemon.maintenance._partial_writer._reader
        self.stream = virtual.engine.registry.by_key[UID, "r"]
        self.decoded = 0
        decode = records.decode_body

        def counted(stream_no: int, body: bytes) -> list[records.Item]:
            self.decoded += 1
            return decode(stream_no, body)

        monkeypatch.setattr(records, "decode_body", counted)

    async def ask(self) -> tuple[wire.Recovered, int]:
        """The reply without text, and how many records were read for it."""
        ended, made = dict[str, set[int]](), dict[str, dict[int, Any]]()
        self.decoded = 0
        reading = self.reader.replies(UID, [self.stream], [], ended, made, with_text=False)
        ((_, kept),) = await reading
        count, whole = self.decoded, dict[str, set[int]]()
        ((_, fresh),) = await self.reader.replies(UID, [self.stream], [], whole)
        told = unreleased(kept, ended["r"], made.get("r")), unreleased(fresh, whole["r"])
        assert resume([], replies=told[:1]) == resume([], replies=told[1:])
        assert pending([], replies=told[:1]) == pending([], replies=told[1:])
        assert msgspec.structs.replace(kept, segments=[], partial=True, partial_reason=None) == (
            msgspec.structs.replace(fresh, segments=[], partial=True, partial_reason=None)
        )
        return kept, count

    async def messages(self) -> tuple[list[dict[str, Any]], int]:
        """Those of its session, and how many records were read for them."""
        request = wire.Project(7, "s", "messages", b'{"last": 50}')
        self.decoded = 0
        told, count = await asked(self.virtual, request), self.decoded
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.reader, "_kept_folds", KeptFolds())
            assert await asked(self.virtual, request) == told
        return json.loads(told)["messages"], count


def step(first_seq: int) -> list[wire.Event]:
    """30 KB of text, a call, its result, and the next step."""
    said: list[Any] = [wire.Token(1, first_seq + at, WORDS) for at in range(30)]
    seq, call = first_seq + 30, f"c{first_seq}"
    said.append(wire.Tool(1, seq, call, "read", b'{"path": "a"}'))
    return [*said, wire.ToolResult(1, seq + 1, call, None, b"found"), wire.Step(1, seq + 2)]


def with_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: Callable[..., Any], steps: int = 4
) -> None:
    async def begun() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                payload = b'{"message_id": "m", "content": "x"}'
                submitted = wire.NewEntry("turn_submitted", payload, "t", turn="t")
                await asked(virtual, wire.Append(7, "s", [submitted]))
                agent.send(wire.Start(1, 0, "r", "s", turn_id="t"))
                for number in range(steps):
                    agent.send(*step(1 + 33 * number))
                await agent.drain("synced")
                await main(virtual, agent, Asking(virtual, monkeypatch), 1 + 33 * steps)

    run(begun)


def text_bytes(reply: wire.Recovered) -> int:
    return sum(len(one.text) for one in reply.segments)


def test_only_what_came_since_is_read_and_no_text_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(_: Virtual, agent: Peer, asking: Asking, seq: int) -> None:
        reply, count = await asking.ask()
        assert count == asking.stream.records > 0
        assert text_bytes(reply) == 4, "one sign for each text that is not blank"
        assert (await asking.ask())[1] == 0
        before = asking.stream.records
        for _ in range(3):
            agent.send(*step(seq))
            await agent.drain()
            reply, count = await asking.ask()
            assert 0 < count == asking.stream.records - before
            before, seq = asking.stream.records, seq + 33
        assert [one.call_id for one in reply.segments if one.kind == "tool"][-1] == f"c{seq - 33}"

    with_reply(tmp_path, monkeypatch, main)


def test_messages_read_only_what_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(_: Virtual, agent: Peer, asking: Asking, seq: int) -> None:
        assert (await asking.messages())[1] == asking.stream.records > 0
        await asking.ask()
        assert (await asking.messages())[1] == 0, "who asks for its calls drives no text out"
        before = asking.stream.records
        for _ in range(3):
            agent.send(*step(seq))
            await agent.drain()
            told, count = await asking.messages()
            assert 0 < count == asking.stream.records - before
            before, seq = asking.stream.records, seq + 33
        assert [one["role"] for one in told] == ["user", *["assistant"] * 7]
        assert {one["content"] for one in told[1:]} == {30 * WORDS.decode()}
        assert told[-1]["tool_calls"][0]["id"] == f"c{seq - 33}"

    with_reply(tmp_path, monkeypatch, main)


def test_what_has_no_place_yet_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(virtual: Virtual, agent: Peer, asking: Asking, seq: int) -> None:
        for _ in range(4):
            agent.send(*step(seq))
            seq += 33
            while asking.stream.next_seq < seq:
                await virtual.daemon.socket_reader.more()
            reply, _ = await asking.ask()
            assert reply.last_seq == seq - 1
        await agent.drain()
        reply, _ = await asking.ask()
        assert len({one.call_id for one in reply.segments if one.kind == "tool"}) == 8

    with_reply(tmp_path, monkeypatch, main)


def test_records_that_moved_are_folded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INDEX_ENTRIES_MAX", 6)

    async def main(_: Virtual, agent: Peer, asking: Asking, seq: int) -> None:
        anew = 0
        for _ in range(12):
            agent.send(*step(seq))
            seq += 33
            await agent.drain()
            was = asking.stream.where[:]
            _, count = await asking.ask()
            anew += count == len(was) > 1
        assert anew > 0

    with_reply(tmp_path, monkeypatch, main)


def test_a_record_that_does_not_verify_is_a_gap_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(_: Virtual, agent: Peer, asking: Asking, seq: int) -> None:
        await asking.ask()
        agent.send(*step(seq))
        await agent.drain("synced")
        files = cast("Any", asking.reader._files)
        read = files.read
        vars(files)["read"] = lambda *place: bytes(len(read(*place)))
        reply, _ = await asking.ask()
        assert {gap.verdict for gap in reply.gaps} == {"corrupt"}
        assert asking.reader._kept_folds._kept == {}
        vars(files)["read"] = read
        reply, count = await asking.ask()
        assert (reply.gaps, count) == ([], asking.stream.records)

    with_reply(tmp_path, monkeypatch, main)


def test_a_disk_that_fails_is_said_and_the_fold_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(_: Virtual, agent: Peer, asking: Asking, seq: int) -> None:
        await asking.ask()
        agent.send(*step(seq))
        await agent.drain("synced")
        files = cast("Any", asking.reader._files)
        read = files.read

        def failing(*_place: int) -> bytes:
            raise OSError(5, "no reading here")

        vars(files)["read"] = failing
        with pytest.raises(OSError, match="no reading here"):
            await asking.ask()
        vars(files)["read"] = read
        assert (await asking.ask())[1] == asking.stream.records

    with_reply(tmp_path, monkeypatch, main)


# --- how much is kept -----------------------------------------------------------------------------


def stream_of(no: int) -> Stream:
    owner = records.Owner("b", 1, 2, 3)
    begin = records.Begin(UID, b"p" * 16, no, f"r{no}", "s", None, None, None, 1, owner)
    stream = Stream(no, begin, None)
    stream.place(Place(no, 0, 10))
    return stream


def held(
    kept_folds: KeptFolds, stream: Stream, result_bytes: int, *, with_text: bool = False
) -> None:
    kept = Kept(stream, "dropped", with_text=with_text)
    kept.where = stream.where[:]
    result = wire.ToolResult(1, 1, "c", None, b"x" * result_bytes)
    assert kept.fold.go_on([records.Happened(1, result)], [])
    kept_folds.keep(kept)


def is_kept(kept_folds: KeptFolds, stream: Stream, *, with_text: bool = False) -> bool:
    kept = kept_folds.take(stream, "dropped", with_text=with_text)
    assert kept.fold.fold.with_text is with_text
    if not kept.fold.fold.last_seq:
        return False
    kept_folds.keep(kept)
    return True


def test_the_one_asked_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEPT_FOLDS_BYTES_MAX", 90_000)
    kept_folds, streams = KeptFolds(), [stream_of(no) for no in range(1, 5)]
    for stream in streams[:3]:
        held(kept_folds, stream, 8_000)
    assert is_kept(kept_folds, streams[0])
    held(kept_folds, streams[3], 8_000)
    assert [is_kept(kept_folds, one) for one in streams] == [True, False, True, True]
    held(kept_folds, stream_of(5), 40_000)
    assert numbers(kept_folds) == [1, 3, 4], "one that is too large drives nobody out"
    held(kept_folds, streams[0], 40_000)
    assert numbers(kept_folds) == [3, 4]
    for key in list(kept_folds._kept):
        kept_folds._drop(key)
    assert kept_folds._held_bytes == 0


def numbers(kept_folds: KeptFolds) -> list[int]:
    return [no for no, _ in kept_folds._kept]


def test_a_text_that_is_too_long_leaves_the_calls_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEPT_FOLDS_BYTES_MAX", 90_000)
    kept_folds, stream = KeptFolds(), stream_of(1)
    held(kept_folds, stream, 8_000)
    held(kept_folds, stream, 8_000, with_text=True)
    assert is_kept(kept_folds, stream)
    assert is_kept(kept_folds, stream, with_text=True)
    held(kept_folds, stream, 40_000, with_text=True)
    assert is_kept(kept_folds, stream)
    assert not is_kept(kept_folds, stream, with_text=True)


def test_what_is_of_another_state_of_the_stream_is_not_gone_on_with() -> None:
    kept_folds, stream = KeptFolds(), stream_of(1)
    held(kept_folds, stream, 10)
    assert is_kept(kept_folds, stream)
    assert not is_kept(kept_folds, stream_of(1)), "begun anew under the same number"
    held(kept_folds, stream, 10)
    assert isinstance(kept := kept_folds.take(stream, "torn"), Kept)
    assert not kept.fold.fold.last_seq, "gaps are put down to something else"
    held(kept_folds, stream, 10)
    stream.replace_places(0, 1, Place(9, 0, 10))
    assert not is_kept(kept_folds, stream)
    held(kept_folds, stream, 10)
    stream.gone = True
    held(kept_folds, stream_of(2), 10)
    assert numbers(kept_folds) == [2]
