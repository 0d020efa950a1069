"""`tee(stream, reply)`: records an SDK's stream as the program reads it.

    with client.reply("session-1") as reply:
        for event in tee(sdk.chat.completions.create(..., stream=True), reply):
            ...
        save(...)
        reply.end()

Owns: the wrapper, and what a second stream on the same reply means. Refuses: what was said
(`recording.py`).

Programs and instrumentation ask a stream for its class, and whether it has `__aiter__` (it is
asynchronous then), before they read it. So a tee is of the class of its stream for `isinstance`, as
wrapt's proxies are, has of these methods what its stream has, and hands on what is set on it.

The reply is the program's: tee says what came and the provider's finish, and leaves the end to
the program, which knows when its copy is safe. A stream that failed makes that end an error,
`end()` too, which returns 0: by an exception of the SDK, which the program may have caught, by an
error that the stream hands on without raising (OpenAI Responses), or by ending without its terminal
event. A stream that the program left early, by `break`, `close()` or a timeout of its own, makes
the reply a cancelled one where the block is left without `end()`; `end()` is the program's word
that what it took is all it wants.

A further stream on the same reply is its next step; where the one before failed, was cut by an
exception or left early it is that step again, a new attempt at it, so that no text stands in the
reply twice and the steps before it stand. It begins with the first event that is read of it: what
is read behind that of the stream before it is in no reply, since two streams at the same time
cannot be told apart in one.

One that goes on where the one before was cut is neither: it adds to the step. A response of OpenAI
that is taken up again says so itself, by its id and its numbers (`ResponsesFold.goes_on`); of any
other stream the program says it, `continues=True`.
"""

from __future__ import annotations

import logging
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Final, cast
from weakref import WeakKeyDictionary

from walld_client.adapters.frameworks.recording import NONE_DECLARED, Progress, Recording
from walld_client.adapters.frameworks.tool_effects import Declared, ToolEffects
from walld_client.argument_checks import wrong
from walld_client.null import NullMixin
from walld_client.reply.reply import ReplyBase

__all__ = ["Tee", "made", "tee"]

_log = logging.getLogger("walld")
_latest: WeakKeyDictionary[ReplyBase, Progress] = WeakKeyDictionary()
"""The latest stream of each reply. Holds no reply: one that is collected unended is a cancelled
one, and must be collected for that."""
_TEXTS = "text_stream"
_READERS = ("until_done", "get_final_")
"""What the SDKs' helpers have beside iteration, and read the stream themselves with."""


def tee(
    stream: Any,
    reply: ReplyBase,
    *,
    tool_effects: Declared | None = None,
    continues: bool = False,
) -> Any:
    """`stream`, each event recorded in `reply` before it is handed on.

    stream: what openai, anthropic or litellm return for `stream=True`, of either colour; or one of
    their helpers, `with tee(client.messages.stream(...), reply) as stream`, whose `text_stream`,
    `until_done()` and `get_final_message()` are recorded too. What is not reading is the stream's
    own (`response`, `close()`, `with`). TypeError for what can be neither read nor entered.
    tool_effects: of tools by name, (side_effect, resume_policy) as `turn.intent` has them: what the
    gate judges a call by that has no result. continues: this stream adds to what the one before it
    on this reply has said, which was cut (a request that ends in the text so far, say): neither an
    attempt nor a step of its own. TypeError for what is no bool.
    """
    effects = ToolEffects(tool_effects)
    if not isinstance(continues, bool):
        raise wrong("continues", "True or False", continues)
    if isinstance(reply, NullMixin):
        return stream
    return made(Tee, stream, reply, effects, continues=continues)


_OWN: Final = frozenset(
    {
        *("_stream", "_reply", "_effects", "_continues"),
        *("_items", "_texts", "_recording", "_has_begun", "_hear"),
    }
)


def _about(stream: Any) -> dict[str, Any]:
    """LiteLLM's stream says whose it is."""
    return {"provider": getattr(stream, "custom_llm_provider", None)}


class Tee:
    """A stream and its recording; made by `made`."""

    _kind: ClassVar[type[Tee]]
    _hear: Callable[[Any], None]
    """Records an event that is read; of the kind, or else `Recording.item` itself."""

    def __init__(
        self, stream: Any, reply: ReplyBase, effects: ToolEffects, continues: bool
    ) -> None:
        self._stream = stream
        self._reply = reply
        self._effects = effects
        self._continues = continues
        self._items: Any = None
        self._texts: Any = None
        self._recording = Recording(reply, effects=effects, about=partial(_about, stream))
        if not hasattr(type(self), "_hear"):  # else it would hold itself
            self._hear = self._recording.item
        self._has_begun = False
        self._note_end()

    def __getattr__(self, name: str) -> Any:
        if name == "_stream":  # one that is just being copied
            raise AttributeError(name)
        found = getattr(self._stream, name)
        is_async = hasattr(type(self._stream), "__aiter__")
        if name == _TEXTS:
            if self._texts is None:
                self._texts = self._each_text_async() if is_async else self._each_text()
            return self._texts
        if name.startswith(_READERS) and callable(found):
            return self._read_before_async(found) if is_async else self._read_before(found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._stream, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._stream, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        found: type = self._stream.__class__
        return found

    def _note_end(self) -> None:
        """Where the program leaves the reply it is this stream that is whole, or is not."""
        progress = self._recording.progress
        self._reply._stream.is_whole = lambda: progress.is_whole

    def _is_current(self, item: Any = None) -> bool:
        """Is it of the reply what is read here? Begins with the first that is: `item`, or its end.
        Raises nothing.
        """
        progress = self._recording.progress
        if not self._has_begun:
            self._has_begun = True
            try:
                self._begin(progress, item)
            except Exception:
                _log.exception("a stream is recorded as one with that before it")
        elif progress.is_superseded:
            _warn_of_two(self._reply.stream_id)
        return not progress.is_superseded

    def _begin(self, progress: Progress, item: Any) -> None:
        before = _latest.get(self._reply)
        _latest[self._reply] = progress
        self._note_end()
        if before is None:
            return
        before.is_superseded = True
        if self._recording.go_on(before, item, anyway=self._continues):
            self._reply._stream.failure = None
        elif before.is_whole or before.is_lost:
            self._reply.step()
        else:
            self._reply.retry("the stream before it did not come to its end", step=True)

    def _ended(self) -> None:
        if self._is_current():
            self._recording.ended()

    def _broke(self, error: BaseException) -> None:
        if self._is_current():
            self._recording.broke(error)

    def _entered(self, entered: Any, read: str) -> Tee:
        """What the program gets for entering it."""
        if entered is self._stream:
            return self
        _check(entered, read)
        return made(self._kind, entered, self._reply, self._effects, continues=self._continues)

    def _own(self, given: Any) -> Any:
        """What the program gets where the stream gives itself, or something else."""
        return self if given is self._stream else given

    def _each_text(self) -> Iterator[str]:
        for event in cast("Iterable[Any]", self):
            if (text := _text_of(event)) is not None:
                yield text

    def _read_before(self, found: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **named: Any) -> Any:
            for _ in cast("Iterable[Any]", self):
                pass
            return self._own(found(*args, **named))

        return read

    async def _each_text_async(self) -> AsyncIterator[str]:
        async for event in cast("AsyncIterable[Any]", self):
            if (text := _text_of(event)) is not None:
                yield text

    def _read_before_async(self, found: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        async def read(*args: Any, **named: Any) -> Any:
            async for _ in cast("AsyncIterable[Any]", self):
                pass
            return self._own(await found(*args, **named))

        return read


class _Read(Tee):
    """What a stream has that is read without an event loop."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = iter(self._stream)
        try:
            item = next(self._items)
        except StopIteration:
            self._ended()
            raise
        except BaseException as error:
            self._broke(error)
            raise
        # What `_is_current` says of nearly all: a call costs some us where caches are cold.
        if (self._has_begun and not self._recording.progress.is_superseded) or self._is_current(
            item
        ):
            self._hear(item)
        return item


class _AsyncRead(Tee):
    """The same with one."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._items is None:
            self._items = aiter(self._stream)
        try:
            item = await anext(self._items)
        except StopAsyncIteration:
            self._ended()
            raise
        except BaseException as error:
            self._broke(error)
            raise
        if (self._has_begun and not self._recording.progress.is_superseded) or self._is_current(
            item
        ):
            self._hear(item)
        return item


class _Entered(Tee):
    """What is entered: a stream, or a helper that makes one."""

    def __enter__(self) -> Tee:
        entered = self._stream.__enter__()
        try:
            return self._entered(entered, "__iter__")
        except TypeError as error:
            self._stream.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self._stream.__exit__(exc_type, exc, traceback)


class _AsyncEntered(Tee):
    """The same with `async with`."""

    async def __aenter__(self) -> Tee:
        entered = await self._stream.__aenter__()
        try:
            return self._entered(entered, "__aiter__")
        except TypeError as error:
            await self._stream.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return await self._stream.__aexit__(exc_type, exc, traceback)


_PARTS: dict[str, type[Tee]] = {
    "__iter__": _Read,
    "__aiter__": _AsyncRead,
    "__enter__": _Entered,
    "__aenter__": _AsyncEntered,
}


_kinds: dict[tuple[type[Tee], ...], type[Tee]] = {}
"""By their bases."""


def made(
    kind: type[Tee],
    stream: Any,
    reply: ReplyBase,
    effects: ToolEffects = NONE_DECLARED,
    *,
    continues: bool = False,
) -> Tee:
    """A `kind` that can do what `stream` can, and no more. TypeError where it is no stream."""
    _check(stream, *_PARTS)
    bases = (*(part for name, part in _PARTS.items() if hasattr(stream, name)), kind)
    if bases not in _kinds:
        _kinds[bases] = cast("type[Tee]", type(kind.__name__, bases, {"_kind": kind}))
    return _kinds[bases](stream, reply, effects, continues)


_warned_of: list[str] = []
"""The first reply of two streams at the same time."""


def _warn_of_two(stream_id: str) -> None:
    if not _warned_of:
        _warned_of.append(stream_id)
        _log.warning(
            "reply %s: a stream is read on though another one on the same reply has begun; it is"
            " not recorded: streams at the same time need a reply each; said once",
            stream_id,
        )


def _check(stream: Any, *methods: str) -> None:
    """TypeError for what has none of these: not found out when the answer is half there."""
    is_answer = isinstance(stream, (str, bytes, dict)) or hasattr(stream, "model_dump")
    if not is_answer and any(hasattr(stream, one) for one in methods):
        return
    hint = "; await it first" if hasattr(stream, "__await__") else ""
    raise TypeError(
        f"tee() takes the stream that an SDK returns for stream=True, or its manager"
        f" (messages.stream(...)), got {type(stream).__qualname__}{hint}"
    )


def _text_of(event: Any) -> str | None:
    """The text of a delta of Anthropic's wire: what `text_stream` of its helper gives."""
    if event.type == "content_block_delta" and event.delta.type == "text_delta":
        text: str = event.delta.text
        return text
    return None
