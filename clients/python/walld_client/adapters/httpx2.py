"""A response hook for httpx2: every SDK that is built on it, in one line.

    client = openai.OpenAI(http_client=DefaultHttpxClient(
        event_hooks={"response": [response_hook(walld, "session-1")]}))

Owns: the tee on a response's bytes. Refuses: what the bytes say (`recording.py`).

Recorded are streams of server-sent events that speak one of the three wires. A response that is not
one is left alone: a JSON answer was received whole before the program saw any of it, and an error
status said nothing. What the program gets is what it would have got: the same chunks, when it
asks for them, and the same exceptions.

The tee lies on the raw bytes. Where they are gzip's they are decoded a second time for walld; any
other compression (deflate, br, zstd) is passed on and not recorded, with a line in the log. The
providers do not compress event streams.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from walld_client.adapters.frameworks.extras import needs
from walld_client.adapters.frameworks.recording import Opener, Recording, SessionId, wire_of_path
from walld_client.adapters.frameworks.tool_effects import Declared
from walld_client.adapters.wires.model_said import hash_of_tools
from walld_client.client import ClientBase
from walld_client.reply.reply import ReplyBase

with needs("httpx2", "httpx2"):
    import httpx2

__all__ = ["async_response_hook", "record_response", "response_hook"]

_log = logging.getLogger("walld")
_PASSED_OVER = {"application/json", "application/x-jsonl"}
"""Content types of which nothing is said: answers that were not streamed, results of batches; and
those of which it was."""


_PROVIDERS = {"openai.com": "openai", "anthropic.com": "anthropic"}
"""By the end of the host; another host is its own name."""
_OF_A_RESPONSE = re.compile(r"/responses/([^/]+)/?$")
_REQUEST_IDS = ("request-id", "x-request-id")


def response_hook(
    client: ClientBase,
    session_id: SessionId,
    *,
    on_reply: Callable[[str], object] | None = None,
    auto_release: bool = False,
    tool_effects: Declared | None = None,
) -> Callable[[httpx2.Response], None]:
    """A hook for `event_hooks={"response": [...]}` of an `httpx2.Client`.

    session_id: a str, or a callable that is asked at each model call, when the response is there
    and nothing of it is read: in the context of whoever makes the call. on_reply: gets the stream
    id of each reply when its first event is read, for `client.release(stream_id)` once the answer
    is saved.
    auto_release: the program keeps no copy of its own; a whole answer is forgotten at once.
    tool_effects: as `adapters.tee` has it.
    """
    opener = Opener(client, session_id, on_reply, auto_release, tool_effects)

    def hook(response: httpx2.Response) -> None:
        record_response(opener, response)

    return hook


def async_response_hook(
    client: ClientBase,
    session_id: SessionId,
    *,
    on_reply: Callable[[str], object] | None = None,
    auto_release: bool = False,
    tool_effects: Declared | None = None,
) -> Callable[[httpx2.Response], Awaitable[None]]:
    """The same for an `httpx2.AsyncClient`; `client` is one of either kind."""
    opener = Opener(client, session_id, on_reply, auto_release, tool_effects)

    async def hook(response: httpx2.Response) -> None:
        record_response(opener, response)

    return hook


def record_response(opener: Opener, response: httpx2.Response) -> None:
    """Puts a tee on the response's body, if it is a stream of events. Never raises."""
    try:
        if not response.is_success:
            return
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        wire = wire_of_path(response.request.url.path)
        is_answer = wire is not None
        if not kind.startswith("text/event-stream"):
            if is_answer and not opener.is_off:
                _tell_once(kind)
            return
        stream = response.stream
        if getattr(stream, "_walld_opener", None) is opener:
            return  # the same hook, given twice
        decode = _decoder(response.headers.get("content-encoding", ""))
        if decode is None:
            return
        session_id = opener.session()
        if session_id is None:
            return
        attempt = _attempt(response.request.headers)

        def opened() -> ReplyBase | None:
            opener.cut.begun(session_id)
            return opener.open_in(session_id, attempt=attempt)

        if opener.is_off:
            if is_answer:
                opened()  # for its id, which the program is given all the same
            return
        recording = Recording(
            opener=opened,
            is_answer=is_answer,
            is_messages=wire == "messages",
            effects=opener.effects,
            about=partial(_about, response),
            cut=opener.cut if wire == "responses" else None,
            may_go_on=partial(_may_go_on, response.request),
            taken_up=_taken_up(response.request),
        )
        is_sync = isinstance(stream, httpx2.SyncByteStream)
        is_async = isinstance(stream, httpx2.AsyncByteStream)
        tee = _BothTee if is_sync and is_async else _AsyncTee if is_async else _Tee
        response.stream = tee(stream, recording, decode, opener)
    except Exception:
        _log.exception("a response is not recorded: walld's hook failed on it")


def _about(response: httpx2.Response) -> dict[str, Any]:
    """What the request, and the headers of its response, say of the model's call."""
    host = response.request.url.host
    named = (name for suffix, name in _PROVIDERS.items() if host.endswith(suffix))
    ids = (response.headers.get(name) for name in _REQUEST_IDS)
    about = {
        "provider": next(named, host),
        "request_id": next((one for one in ids if one), None),
        "tools_hash": _tools_of(response.request),
    }
    return {name: value for name, value in about.items() if value}


def _tools_of(request: httpx2.Request) -> str | None:
    try:
        return hash_of_tools(_asked(request).tools)
    except (httpx2.RequestNotRead, msgspec.MsgspecError, ValueError):
        return None


def _taken_up(request: httpx2.Request) -> str | None:
    """The id of the response of OpenAI's that is asked for once more; None: it is a new one."""
    found = _OF_A_RESPONSE.search(request.url.path) if request.method == "GET" else None
    return None if found is None else found[1]


def _may_go_on(request: httpx2.Request) -> bool:
    """Can the response be asked for once more? One that runs in the background can."""
    if _taken_up(request) is not None:
        return True
    try:
        return _asked(request).background is True
    except (httpx2.RequestNotRead, msgspec.MsgspecError, ValueError):
        return False


def _asked(request: httpx2.Request) -> _Asked:
    return msgspec.json.decode(request.content, type=_Asked)


def _tell_once(kind: str) -> None:
    """What a model answers in neither events nor JSON."""
    if kind not in _PASSED_OVER:
        _PASSED_OVER.add(kind)
        _log.warning("responses of content-type %r are not recorded: walld reads events", kind)


def _attempt(headers: Any) -> int:
    """1, and one more for each retry of the SDK: openai's and anthropic's say so in a header."""
    try:
        return int(headers.get("x-stainless-retry-count", "0")) + 1
    except ValueError:
        return 1


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    """What undoes the content encoding for walld's own copy; None where nothing here does."""
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    names = [name for name in names if name != "identity"]
    if not names:
        return bytes
    if names in (["gzip"], ["x-gzip"]):
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress
    _log.warning("a response is not recorded: walld cannot decode content-encoding %r", encoding)
    return None


class _Asked(msgspec.Struct):
    """Of a request, which may be long: the rest is passed over."""

    tools: Any = None
    background: Any = None


class _Half:
    """What every tee has, and what it has of the stream it lies on: all that it has not itself.

    httpx2 keeps `elapsed` on the stream of a response, and SDKs what they trace with.
    """

    def __init__(
        self,
        stream: Any,
        recording: Recording,
        decode: Callable[[bytes], bytes],
        opener: Opener,
    ) -> None:
        self._stream = stream
        self._walld_opener = opener
        """Who records it: found through what else lies on the stream, of ours or not."""
        self._recording = recording
        self._decode = decode

    def __getattr__(self, name: str) -> Any:
        if name == "_stream":  # one that is just being copied
            raise AttributeError(name)
        return getattr(self._stream, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        found: type = self._stream.__class__
        return found

    def _chunk(self, raw: bytes) -> None:
        try:
            body = self._decode(raw)
        except zlib.error as error:  # the program gets its own exception from httpx2
            self._recording.broke(error)
            return
        self._recording.chunk(body)


class _Tee(_Half, httpx2.SyncByteStream):
    """A response's bytes, each chunk recorded before it is handed on."""

    def __iter__(self) -> Iterator[bytes]:
        recording = self._recording
        try:
            for raw in self._stream:
                self._chunk(raw)
                yield raw
        except GeneratorExit:  # nobody reads on; `close` may never be called
            recording.closed()
            raise
        except BaseException as error:
            recording.broke(error)
            raise
        recording.ended()

    def close(self) -> None:
        self._recording.closed()
        self._stream.close()


class _AsyncTee(_Half, httpx2.AsyncByteStream):
    """The same for an asynchronous client."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        recording = self._recording
        stream = aiter(self._stream)
        try:
            async for raw in stream:
                self._chunk(raw)
                yield raw
        except GeneratorExit:
            recording.closed()
            raise
        except BaseException as error:
            recording.broke(error)
            raise
        finally:
            if isinstance(stream, AsyncGenerator):  # as httpx2's own layers do: closed in order
                await stream.aclose()
        recording.ended()

    async def aclose(self) -> None:
        self._recording.closed()
        await self._stream.aclose()


class _BothTee(_Tee, _AsyncTee):
    """The same on a stream that either kind of client reads: `httpx2.ByteStream`."""
