"""`tee(stream, reply)`: a stream of an SDK that the program holds, recorded as it is read.

    with client.reply("session-1") as reply:
        for event in tee(sdk.chat.completions.create(..., stream=True), reply):
            ...
        save(...)
        reply.end()

Owns: the wrapper, and what a second stream on the same reply means. Refuses: what was said
(`recording.py`).

The reply is the program's: tee says what came and the provider's finish, and leaves the end to
the program, which knows when its copy is safe. Two things end it here, because a program that
does not look for them would call the reply whole: an error that the stream hands on without
raising (OpenAI Responses), and a stream that ends without its terminal event.

A further stream on the same reply is its next step; where the one before was cut by an exception or
left early it is a new attempt, so that no text stands in the reply twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from walld_client.adapters.recording import Progress, Recording
from walld_client.null import NullMixin
from walld_client.reply import ReplyBase

__all__ = ["Tee", "tee"]

_latest: WeakKeyDictionary[ReplyBase, Progress] = WeakKeyDictionary()
"""The latest stream of each reply. Holds no reply: one that is collected unended is a cancelled
one, and must be collected for that."""


def tee(stream: Any, reply: ReplyBase) -> Any:
    """`stream`, each event recorded in `reply` before it is handed on.

    stream: what openai, anthropic or litellm return for `stream=True` (or `with
    client.messages.stream(...) as stream`), of either colour. What is not iteration is the
    stream's own (`response`, `close()`, `with`); of anthropic's helpers that read by themselves
    (`get_final_message`, `text_stream`) nothing is recorded, unless the stream was read first.
    """
    return stream if isinstance(reply, NullMixin) else Tee(stream, reply)


class Tee:
    """A stream and its recording; made by `tee`."""

    def __init__(self, stream: Any, reply: ReplyBase) -> None:
        self._stream = stream
        self._reply = reply
        self._items: Any = None
        self._recording = Recording(reply)
        before = _latest.get(reply)
        if before is not None and before.is_whole:
            reply.step()
        elif before is not None:
            reply.retry("the stream before it did not come to its end")
        _latest[reply] = self._recording.progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _hear(self, item: Any) -> None:
        self._recording.item(item)

    # --- without an event loop ---

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._items is None:
            self._items = iter(self._stream)
        try:
            item = next(self._items)
        except StopIteration:
            self._recording.ended()
            raise
        except BaseException as error:
            self._recording.broke(error)
            raise
        self._hear(item)
        return item

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self._stream.__exit__(exc_type, exc, traceback)

    # --- with one ---

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._items is None:
            self._items = aiter(self._stream)
        try:
            item = await anext(self._items)
        except StopAsyncIteration:
            self._recording.ended()
            raise
        except BaseException as error:
            self._recording.broke(error)
            raise
        self._hear(item)
        return item

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return await self._stream.__aexit__(exc_type, exc, traceback)
