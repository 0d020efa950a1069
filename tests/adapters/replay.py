"""A local server that answers as the providers do, and breaks off as they do. Loopback only.

Owns: HTTP, and where an answer ends. Refuses: what it says (`answers.py`).

The model's name says what comes, for example `tool:hold7`:

    text | think | tool | emoji | twins     the answer; once the request holds a tool's result, text
    :cutN    the connection is reset behind N frames
    :eofN    the body ends behind N frames, as if all were well
    :errN    the vendor's own error behind N frames
    :holdN   nothing more behind N frames, and the connection stays
    :msD     D milliseconds before each frame
    :busyN   the first N requests of this model get a status that SDKs try again
    :gzip    compressed
    :frames  each frame in a chunk of its own, and a moment between two

A request without `stream` gets the same answer as one JSON object.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from adapters.answers import Frame, answer, failure, told

__all__ = ["Replay", "whole_of"]

_PATHS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
# Of before there were chats, and no model's: only bodies that a test has put there.
_PATHS |= {"/completions": "", "/reports": ""}
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s


class Replay:
    """The server, running as long as the block lasts."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        """The body of each request, in order."""
        self.bodies: dict[str, bytes | list[bytes]] = {}
        """Recorded bodies to send as they are, whole or in these chunks, by model."""
        self.then: dict[str, list[bytes]] = {}
        """What is sent instead of those to a request that holds a tool's result."""
        self.responses: dict[str, list[bytes]] = {}
        """Of responses that run in the background, by id: their events, which a GET may ask for."""
        self.asked: Counter[str] = Counter()
        self.closing = threading.Event()
        replay = self

        class _Answering(_Answer):
            server_side = replay

        self._server = _Server(("127.0.0.1", 0), _Answering)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Without `/v1`: anthropic's base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Replay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A program that was killed while its next request was awaited is what the tests want."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Answer(BaseHTTPRequestHandler):
    """One request."""

    server_side: Replay
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        """A response that is taken up again, behind the event with the number that is named."""
        path, _, query = self.path.partition("?")
        after = int(parse_qs(query).get("starting_after", ["-1"])[0])
        events = self.server_side.responses[path.rpartition("/")[2]]
        self.ways: dict[str, str] = {}
        with suppress(BrokenPipeError, ConnectionResetError):
            self._stream("responses", [Frame(one) for one in events[after + 1 :]])

    def do_POST(self) -> None:
        replay = self.server_side
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        replay.seen.append(asked)
        path = next(path for path in _PATHS if self.path.partition("?")[0].endswith(path))
        wire = _PATHS[path]
        scenario, *ways = asked["model"].split(":")
        self.ways = dict(re.fullmatch(r"([a-z]+)(\d*)", way).groups() for way in ways)  # type: ignore[union-attr,misc]
        replay.asked[asked["model"]] += 1
        try:
            if replay.asked[asked["model"]] <= int(self.ways.get("busy", 0)):
                self._whole(503, {"error": {"message": "busy", "type": "overloaded_error"}})
            elif asked["model"] in replay.bodies:
                body = replay.bodies[asked["model"]]
                if _holds_result(asked):
                    body = replay.then.get(asked["model"], body)
                chunks = [body] if isinstance(body, bytes) else body
                self._stream(wire, [Frame(chunk) for chunk in chunks])
            else:
                if _holds_result(asked):
                    scenario, self.ways = "after-tool", {"ms": self.ways.get("ms", "0")}
                frames = answer(wire, scenario)
                if asked.get("stream"):
                    self._stream(wire, frames)
                else:
                    self._whole(200, whole_of(wire, frames))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the program went away

    def _whole(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, wire: str, frames: list[Frame]) -> None:
        ways = self.ways
        stops = {way: int(ways[way]) for way in ("cut", "eof", "err", "hold") if way in ways}
        (stop, at), *_ = [*stops.items(), ("", len(frames))]
        pack = zlib.compressobj(wbits=zlib.MAX_WBITS | 16) if "gzip" in ways else None
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        if pack is not None:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        for frame in [*frames[:at], *([failure(wire)] if stop == "err" else [])]:
            time.sleep(int(ways.get("ms") or ("frames" in ways)) / 1000)
            body = frame.body
            if pack is not None:
                body = pack.compress(body) + pack.flush(zlib.Z_SYNC_FLUSH)
            self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
            self.wfile.flush()
        if stop == "hold":
            self.server_side.closing.wait(60)
        if stop == "cut":
            _wait_until_read(self.connection)  # or it would be lost to the reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close_connection = True
            self.connection.close()
            return
        body = b"" if pack is None else pack.flush()
        tail = f"{len(body):x}\r\n".encode() + body + b"\r\n" if body else b""
        self.wfile.write(tail + b"0\r\n\r\n")


def _wait_until_read(connection: socket.socket) -> None:
    """Until the program has taken all that was sent out of its kernel's hands."""
    own, its = (_in_hex(*one) for one in (connection.getsockname(), connection.getpeername()))
    while True:
        waiting = 0
        with open("/proc/net/tcp", encoding="ascii") as sockets:
            next(sockets)
            for line in sockets:
                _, here, there, _, queues, *_ = line.split()
                sent, received = (int(one, 16) for one in queues.split(":", 1))
                if (here, there) == (own, its):
                    waiting += sent
                elif (here, there) == (its, own):
                    waiting += received
        if not waiting:
            return
        time.sleep(0.001)


def _in_hex(address: str, port: int) -> str:
    """As /proc/net/tcp has it."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"


def _holds_result(asked: dict[str, Any]) -> bool:
    text = json.dumps(asked.get("messages") or asked.get("input") or "")
    return any(
        word in text for word in ('"role": "tool"', '"function_call_output"', '"tool_result"')
    )


def whole_of(wire: str, frames: list[Frame]) -> dict[str, Any]:
    """The answer of a request that asked for no stream."""
    if wire == "responses":
        whole: dict[str, Any] = json.loads(frames[-1].body.partition(b"data: ")[2])["response"]
        return whole
    state = told(frames)
    calls = state["calls"].items()
    if wire == "chat":
        message: dict[str, Any] = {"role": "assistant", "content": state["text"]}
        if calls:
            message["tool_calls"] = [
                {"id": call, "type": "function", "function": {"name": name, "arguments": text}}
                for call, (name, text) in calls
            ]
        reason = "tool_calls" if calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        about = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        used = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        return {**about, "choices": [choice], "usage": used}
    content: list[dict[str, Any]] = [{"type": "text", "text": state["text"]}]
    for call, (name, text) in calls:
        content.append({"type": "tool_use", "id": call, "name": name, "input": json.loads(text)})
    about = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1}
    reason = "tool_use" if calls else "end_turn"
    return {**about, "stop_reason": reason, "stop_sequence": None, "usage": usage}
