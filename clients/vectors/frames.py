"""Every message as bytes, edge values included (`frames.json`).

Owns: which frames there are. `canonical` ones are in the shortest form with every field; a client
may write any form that reads the same, and both sides must be able to read all of them. `texts` are
pieces of text and what they read as when joined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
from shape import encoded, fields_of
from walld_client.wire import messages as wire

from walld import limits

__all__ = ["frames", "texts"]

U32_MAX = 2**32 - 1
PRODUCER = bytes(range(16))
LOG = bytes(range(0xF0, 0x100))
HIGH, LOW = "\ud83d".encode("utf-8", "surrogatepass"), "\ude00".encode("utf-8", "surrogatepass")
START = wire.Start(1, 0, "run-1", "chat-7")
OPAQUE = msgspec.msgpack.encode({"model": "m"})


def frames() -> list[dict[str, Any]]:
    """The vectors of `frames.json`."""
    return [
        {
            "name": name,
            "from": sender,
            "message": type(message).__name__,
            "fields": fields_of(message),
            "canonical": by_hand is None,
            **(encoded(message) if by_hand is None else {"hex": _framed(by_hand).hex()}),
        }
        for sender, vectors in (
            ("agent", _hellos()),
            ("agent", _openings()),
            ("agent", _texts_sent()),
            ("agent", _tools()),
            ("agent", _turning_points()),
            ("agent", _terminals()),
            ("agent", _connection()),
            ("agent", _as_other_encoders_write()),
            ("daemon", _to_agents()),
            ("query", _requests()),
            ("daemon", _answers()),
        )
        for name, message, by_hand in vectors
    ]


def texts() -> list[dict[str, Any]]:
    """Pieces and what they read as: `shown` has U+FFFD for what no text can hold."""
    pieces: list[tuple[str, list[bytes], str]] = [
        ("whole", ["Grüße".encode()], "Grüße"),
        ("emoji in two chunks", [b"a" + HIGH, LOW + b"b"], "a\U0001f600b"),
        ("emoji within one chunk as two halves", [HIGH + LOW], "\U0001f600"),
        ("high half alone", [HIGH, b"x"], "�x"),
        ("low half alone", [b"x", LOW], "x�"),
        ("halves the wrong way round", [LOW, HIGH], "��"),
        ("high half at the end", [b"x", HIGH], "x�"),
        ("an empty piece between the halves", [HIGH, b"", LOW], "\U0001f600"),
    ]
    return [
        {"name": name, "pieces": [each.hex() for each in parts], "shown": shown}
        for name, parts, shown in pieces
    ]


Vectors = Iterator[tuple[str, msgspec.Struct, bytes | None]]


def _framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def _hellos() -> Vectors:
    yield "hello_agent", wire.Hello(1, "agent", PRODUCER), None
    yield "hello_query", wire.Hello(1, "query", PRODUCER, client="walld-client 0.1.0"), None
    yield "hello_returning", wire.Hello(1, "agent", PRODUCER, LOG, 2**32 + 1, "x"), None


def _openings() -> Vectors:
    yield "start", START, None
    yield (
        "start_full",
        wire.Start(U32_MAX, 0, "run-ü", "chat-7", "turn-1", "run-0", OPAQUE, 1_790_000_000_123),
        None,
    )
    yield "start_ids_are_data", wire.Start(2, 0, "..", "", "a/b", "\x00", b"", 0), None
    yield "start_longest_id", wire.Start(3, 0, "i" * limits.ID_BYTES_MAX, "s"), None


def _texts_sent() -> Vectors:
    yield "token", wire.Token(1, 1, b"Hello"), None
    yield "token_empty", wire.Token(1, 2, b""), None
    yield "token_high_half", wire.Token(1, 3, HIGH), None
    yield "token_low_half", wire.Token(1, 4, LOW), None
    yield "token_emoji", wire.Token(1, 5, "\U0001f600".encode()), None
    yield "token_control_characters", wire.Token(1, 6, b"\x00\x1b[31m\r\n"), None
    yield "token_info", wire.Token(1, 7, b"x", OPAQUE), None
    yield "token_last_seq", wire.Token(U32_MAX, U32_MAX, b"x"), None
    for name, length in (("bin8", 255), ("bin16", 256), ("bin32", 65536)):
        yield f"token_{name}", wire.Token(1, length, b"a" * length), None
    yield "token_longest", wire.Token(1, 8, b"a" * limits.TEXT_BYTES_MAX), None
    yield "reasoning", wire.Reasoning(1, 9, b"because"), None
    yield "reasoning_info", wire.Reasoning(1, 10, b"", OPAQUE), None
    yield "run_of_tokens", wire.Run(1, 11, 3, b"\x01\x00\x02", b"abc"), None
    yield "run_of_reasoning", wire.Run(1, 14, 4, b"\x03", HIGH), None
    yield "run_long_lengths", wire.Run(1, 15, 3, b"\x7f\x80\x01\xac\x02", b"r" * 555), None


def _tools() -> Vectors:
    yield "tool", wire.Tool(1, 20, "call-1", "search"), None
    yield "tool_full", wire.Tool(1, 21, "call-1", "search", b'{"q":"\xc3\xbc"}', OPAQUE, 9), None
    yield "tool_arguments", wire.ToolArguments(1, 22, "call-1", b'{"q":'), None
    yield "tool_result", wire.ToolResult(1, 23, "call-1", "search", b"3 hits"), None
    yield (
        "tool_result_json_failed",
        wire.ToolResult(1, 24, "call-1", None, b'{"error":1}', json=True, failed=True, info=OPAQUE),
        None,
    )
    yield (
        "tool_result_cut_orphan",
        wire.ToolResult(1, 25, None, None, b"", truncated_from=2**32),
        None,
    )


def _turning_points() -> Vectors:
    yield "step", wire.Step(1, 30), None
    yield "step_info", wire.Step(1, 31, OPAQUE), None
    yield "custom", wire.Custom(1, 32, "progress", OPAQUE), None
    yield "custom_empty", wire.Custom(1, 33, "", b"", 1_048_577), None
    yield "retry", wire.Retry(1, 34), None
    yield "retry_reason", wire.Retry(1, 35, "overloaded"), None
    yield "retry_step", wire.Retry(1, 35, "cut", True), None
    yield "move", wire.Move(1, 36, "chat-8"), None
    yield "finish", wire.Finish(1, 37), None
    yield "finish_reason", wire.Finish(1, 38, "stop"), None


def _terminals() -> Vectors:
    yield "app_error", wire.AppError(1, 40, "boom"), None
    yield "app_error_full", wire.AppError(1, 41, "", "auth", OPAQUE), None
    yield "end_clean", wire.End(1, 42, clean=True), None
    yield "end_clean_reason", wire.End(1, 43, True, "stop"), None
    yield "end_cancelled", wire.End(1, 44, clean=False, reason="user"), None
    yield "release", wire.Release(1, 45), None


def _connection() -> Vectors:
    yield "resume_all_held", wire.Resume(START, 0, -1, 46), None
    yield "resume_nothing_held", wire.Resume(START, 46, 45, 46), None
    yield "resume_released", wire.Resume(START, 46, 45, 46, released=True), None
    yield "resume_moved", wire.Resume(START, 46, 45, 46, moved_to="new"), None
    yield "drain_written", wire.Drain(1, "written"), None
    yield "drain_synced", wire.Drain(U32_MAX, "synced"), None


def _as_other_encoders_write() -> Vectors:
    """Frames that another msgpack library may write, or a later version of this protocol."""
    token = wire.Token(1, 1, b"Hello")
    yield "token_defaults_left_out", token, b"\x94\x03\x01\x01\xc4\x05Hello"
    yield (
        "token_wide_integers",
        token,
        b"\xdc\x00\x04\xcc\x03\xcd\x00\x01\xcf\x00\x00\x00\x00\x00\x00\x00\x01\xc5\x00\x05Hello",
    )
    yield (
        "token_signed_integers",
        token,
        b"\x94\xd0\x03\xd1\x00\x01\xd2\x00\x00\x00\x01\xc4\x05Hello",
    )
    yield (
        "token_widest_headers",
        token,
        b"\xdd\x00\x00\x00\x04\x03\x01\x01\xc6\x00\x00\x00\x05Hello",
    )
    by_hand = b"\x94\x03\xce\x00\x00\x00\x01\xce\x00\x00\x00\x01\xc5\x00\x05Hello"
    yield "token_ids_at_fixed_places", token, by_hand
    yield "token_later_fields", token, b"\x98\x03\x01\x01\xc4\x05Hello\xc0\x07\xa1x\x92\x01\xc0"
    yield "start_defaults_left_out", START, b"\x95\x02\x01\x00\xa5run-1\xa6chat-7"
    yield "start_wide_text", START, b"\x95\x02\x01\x00\xd9\x05run-1\xda\x00\x06chat-7"


def _to_agents() -> Vectors:
    welcome = (limits.FRAME_BYTES_MAX, limits.TEXT_BYTES_MAX)
    yield "welcome", wire.Welcome(1, "walld 0.1.0", LOG, *welcome), None
    yield "ack_nothing_moved", wire.Ack(LOG, 0, 0, []), None
    yield "ack", wire.Ack(LOG, 8, 7, [(1, 45, 40), (2, 0, -1)]), None
    yield "ack_edges", wire.Ack(LOG, 2**53 - 1, 2**32, [(U32_MAX, U32_MAX, U32_MAX)]), None
    yield "drained", wire.Drained(1, "written"), None
    yield "refused", wire.Refused(1, 46, "after_terminal", "Token", "Release"), None
    yield "error", wire.Error("version", "another protocol version", "2", "1"), None


def _requests() -> Vectors:
    seen = [wire.Seen(PRODUCER, 1, 45)]
    yield "recover_latest", wire.Recover(1, "latest", "chat-7"), None
    yield "recover_one", wire.Recover(2, "all", None, "run-1", seen, 1000), None
    yield "recover_orphans", wire.Recover(U32_MAX, "orphans"), None
    yield "has_partial", wire.HasPartial(3, "chat-7", seen), None
    yield "has_partial_empty_id", wire.HasPartial(4, ""), None
    yield "resolve", wire.Resolve(5, "run-1"), None
    yield "resolve_last_seq", wire.Resolve(6, "run-1", 0, 0), None
    yield "status", wire.Status(7), None
    yield "metrics", wire.Metrics(8), None
    yield "list", wire.List(9), None
    yield "list_prefix", wire.List(10, "chat-", 0), None
    yield from _about_sessions()


def _about_sessions() -> Vectors:
    seen = [wire.Seen(PRODUCER, 1, 45)]
    entry = wire.NewEntry("message", b'{"role":"user","content":"\\ud83d"}', "e-1")
    full = wire.NewEntry(
        "turn_submitted",
        b'{"message_id":"m-1","content":"Gr\xc3\xbc\xc3\x9fe"}',
        "t-1",
        parent="e-1",
        turn="t-1",
        cause="e-0",
        correlation="job-7",
        key="m-1",
        leaf=False,
        once=True,
        at_ms=1_790_000_000_123,
    )
    yield "append", wire.Append(11, "chat-7", [entry]), None
    yield "append_full", wire.Append(12, "chat-7", [entry, full], 0, "synced", seen), None
    yield "append_nothing", wire.Append(13, "..", []), None
    yield "append_unowned", wire.Append(28, "chat-7", [full], unowned=True), None
    yield "append_in_order", wire.Append(29, "chat-7", [entry], in_order=True), None
    yield "events", wire.Events(14, "chat-7"), None
    yield "events_page", wire.Events(15, "chat-7", 2**32, 2048, 1000, seen), None
    yield "project", wire.Project(16, "chat-7", "state"), None
    arguments = b'{"format":"openai","compacted":true}'
    yield "project_full", wire.Project(17, "chat-7", "messages", arguments, 0, seen), None
    yield "sessions", wire.Sessions(18), None
    yield "sessions_prefix", wire.Sessions(19, "chat-", 0), None
    yield "delete", wire.Delete(20, "chat-7"), None
    yield "delete_of_another", wire.Delete(21, "a/b", 1000, seen), None
    yield "delete_at", wire.DeleteAt(31, "chat-7", 2**32 - 1), None
    yield "delete_at_of_another", wire.DeleteAt(32, "a/b", 0, 1000, seen), None
    yield "fork", wire.Fork(22, "chat-7", "chat-8"), None
    yield "fork_full", wire.Fork(23, "chat-7", "chat-8", "e-1", True, seen), None
    hashed = bytes(range(32))
    yield "put_artifact", wire.PutArtifact(24, "chat-7", hashed, 5, 0, b"Hello"), None
    yield (
        "put_artifact_later_piece",
        wire.PutArtifact(25, "chat-7", hashed, 2**32, 2**31, b""),
        None,
    )
    yield "get_artifact", wire.GetArtifact(26, "chat-7", hashed), None
    yield "get_artifact_of_another", wire.GetArtifact(27, "chat-7", hashed, 0), None
    yield "attest", wire.Attest(30, "chat-7", LOG + bytes(24)), None


def _answers() -> Vectors:
    yield "answer_bool", wire.Answer(3, b"\xc3"), None
    yield "answer_nothing", wire.Answer(1, b"\x90"), None
    made = wire.Answer(4, b"\x90", new_directory=1_790_000_000_123)
    yield "answer_of_a_new_directory", made, None
    one = msgspec.msgpack.encode([_recovered()])
    yield "answer_first_piece", wire.Answer(2, one[:100], last=False), None
    yield "answer_last_piece", wire.Answer(2, one[100:]), None
    yield "error_of_a_request", wire.Error("recovering", "ask again", id=3), None
    placed = msgspec.msgpack.encode([wire.Placed(1, "e-1"), wire.Placed(7, "t-0", is_new=False)])
    yield "answer_placed", wire.Answer(12, placed), None
    yield "answer_with_a_receipt", wire.Answer(12, placed, receipt=LOG + bytes(24)), None
    facts = [wire.SessionFacts("chat-7", 1000, 7, 1_790_000_000_123, 2**32)]
    yield "answer_sessions", wire.Answer(18, msgspec.msgpack.encode(facts)), None
    yield "answer_never_written", wire.Answer(14, b"\xc0"), None
    yield "answer_json", wire.Answer(16, msgspec.msgpack.encode(b"{}")), None
    yield "error_stale", wire.Error("stale", "another wrote", "3", "7", id=11), None


def _recovered() -> wire.Recovered:
    """A reply with a tool call open and a gap, as it stands in the pieces of answer 2."""
    segments = [
        wire.RecoveredSegment("text", 0, 0, 1, 3, 1_790_000_000_123, b"Hello" + HIGH),
        wire.RecoveredSegment("gap", 0, 0, 4, 5, 0, verdict="dropped"),
        wire.RecoveredSegment(
            "tool", 0, 0, 6, 6, 1, call_id="c", name="f", arguments=b"{", outcome="unknown"
        ),
    ]
    return wire.Recovered(
        stream_id="run-1",
        session_id="chat-7",
        uid=1000,
        turn_id=None,
        parent=None,
        meta=OPAQUE,
        status="crashed",
        owner_alive=False,
        lost_reason="agent_lost",
        error=wire.ReplyError("boom"),
        finish_reason=None,
        started_at_ms=1_790_000_000_000,
        last_event_at_ms=1_790_000_000_123,
        last_seq=6,
        gaps=[wire.Gap(4, 5, "dropped")],
        attempts=1,
        events=5,
        partial=True,
        partial_reason="gap",
        segments=segments,
        doubt="1 files",
    )
