"""Records one model call into one reply.

Owns: when a reply is opened, how it ends, and that nothing which goes wrong here reaches the
program. Refuses: what was said (the folds), where it comes from (the files named after SDKs).

- What is said is sent before the program sees it: a program that is killed behind a chunk has
  that chunk in walld.
- A reply is one model call. Another call, also one that repeats it, is another reply: no text
  can stand in a reply twice.
- Clean is only what the wire's terminal marker says. A body that ends without it is errored,
  kind `no_terminal_event`, though no SDK raises there. The reply is never released here, unless
  `auto_release` was asked for.
- A reply that is the program's own (`tee`) is ended by the program alone, which may ask again: a
  failure, raised or not, is remembered there, and makes it errored where the program leaves it at
  that. So is a stream that is not at its end, which makes it cancelled; `end()` overrules that.
- Nothing here raises into the program. An event that walld does not understand is passed over
  and counted in an event of kind `unread`; a body that it cannot read on ends the reply, errored,
  kind `adapter_error`. Both are a line in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from walld_client.adapters.frameworks.cut_responses import CutResponses
from walld_client.adapters.frameworks.tool_effects import Declared, ToolEffects
from walld_client.adapters.wires.body import Body, fold_for
from walld_client.adapters.wires.openai_responses import ResponsesFold
from walld_client.adapters.wires.wire import Failure, Fold, Sink
from walld_client.client import ClientBase
from walld_client.null import NullAnswers, NullMixin
from walld_client.reply.reply import ReplyBase
from walld_client.reply.send import let_go
from walld_client.reply.terminal_events import message_of

__all__ = [
    "NO_TERMINAL",
    "Opener",
    "Progress",
    "Recording",
    "SessionId",
    "ending_of",
    "wire_of_path",
]

SessionId = str | Callable[[], str | None]
"""The session of a reply, or what is asked for it at each model call: a `ContextVar.get`, say.
None: this call is not recorded."""

NONE_DECLARED = ToolEffects()
NO_TERMINAL = Failure(
    "the body ended without the provider's terminal event: the answer may be cut",
    "no_terminal_event",
)
NOT_JSON = Failure("an event of the body is no JSON object: it was read no further", "not_json")
_MODEL_PATH = re.compile(r"/((?:chat/)?completions|responses|messages|complete)(/|$)")
_log = logging.getLogger("walld")


def wire_of_path(path: str) -> str | None:
    """What the path of a URL says of who answers there: `messages`, say; None: nothing."""
    found = _MODEL_PATH.search(path)
    return None if found is None else found[1]


class Opener:
    """Opens replies: what every hook of a program has been told once."""

    def __init__(
        self,
        client: ClientBase,
        session_id: SessionId,
        on_reply: Callable[[str], object] | None = None,
        auto_release: bool = False,
        tool_effects: Declared | None = None,
    ) -> None:
        self.effects = ToolEffects(tool_effects)
        self._client = client
        self._session_id = session_id
        self._on_reply = on_reply
        self._auto_release = auto_release
        self.cut: CutResponses[Recording] = CutResponses()

    @property
    def is_off(self) -> bool:
        """Is walld switched off? Ids are given then, and nothing is recorded."""
        return isinstance(getattr(self._client, "_pool", None), NullAnswers)

    def session(self) -> str | None:
        """The session of the model call that the caller makes; None: not recorded. Never raises."""
        try:
            return self._session_id if isinstance(self._session_id, str) else self._session_id()
        except Exception:
            _log.exception("a model call is not recorded: its session could not be told")
            return None

    def open(self, **meta: Any) -> ReplyBase | None:
        """A reply for one model call; None where it is not to be recorded. Never raises."""
        session_id = self.session()
        return None if session_id is None else self.open_in(session_id, **meta)

    def open_in(self, session_id: str, **meta: Any) -> ReplyBase | None:
        """The same, in a session that was asked for before."""
        try:
            # Both kinds of client have the same `reply`; their common base does not show it.
            opened: ReplyBase = self._client.reply(  # type: ignore[attr-defined]
                session_id, auto_release=self._auto_release, **meta
            )
        except Exception:
            _log.exception("a model call is not recorded: its reply could not be opened")
            return None
        try:
            if self._on_reply is not None:
                self._on_reply(opened.stream_id)
        except Exception:
            _log.exception("on_reply failed: %s is recorded all the same", opened.stream_id)
        # Switched off: nothing is even read, and the id is real all the same.
        return None if isinstance(opened, NullMixin) else opened


class Progress:
    """How far one model call has come. Knows no reply, so that it may outlive one."""

    __slots__ = ("fold", "is_broken", "is_lost", "is_superseded")

    def __init__(self) -> None:
        self.fold: Fold | None = None
        self.is_broken = False
        """The program got an exception, or the provider's error: it asks again, also where all text
        had come."""
        self.is_lost = False
        """The adapter failed on it: nobody here knows whether the program got it whole."""
        self.is_superseded = False
        """Another one has begun for its reply: what still comes of it is in no reply."""

    @property
    def is_whole(self) -> bool:
        """A body that ends here is a whole one."""
        return not self.is_broken and self.fold is not None and self.fold.may_end_here()


class Recording:
    """One model call. Every method returns at once and raises nothing."""

    __slots__ = (
        "_about",
        "_body",
        "_cut",
        "_effects",
        "_goes_on",
        "_is_done",
        "_may_go_on",
        "_open",
        "_owns",
        "_sink",
        "_taken_up",
        "_unread",
        "progress",
        "reply",
    )

    def __init__(
        self,
        reply: ReplyBase | None = None,
        *,
        opener: Callable[[], ReplyBase | None] | None = None,
        is_answer: bool = False,
        is_messages: bool = False,
        effects: ToolEffects = NONE_DECLARED,
        about: Callable[[], dict[str, Any]] = dict,
        cut: CutResponses[Recording] | None = None,
        may_go_on: Callable[[], bool] = bool,
        taken_up: str | None = None,
    ) -> None:
        """Into `reply`, which is the program's and ends with it; or into one that `opener` opens
        with the first event, and that ends here. about: what is known of the model's call without
        its answer, asked once that comes. cut: where the reply waits if its response is cut and
        may_go_on says that it can be taken up again; taken_up: the id of the one that is.
        """
        self.reply = reply
        self._effects = effects
        self._sink: Sink | None = None if reply is None else effects.sink(reply)
        """Where the folds say it: the reply, with what is declared of its calls."""
        self._owns = reply is None
        self._open = opener
        self._body = Body(is_answer, is_messages)
        self.progress = Progress()
        self._about = about
        self._cut = cut
        self._may_go_on = may_go_on
        self._taken_up = taken_up
        self._is_done = False
        self._goes_on = False
        """The model's call began before."""
        self._unread = 0

    def go_on(self, before: Progress, item: Any, *, anyway: bool) -> bool:
        """Does the stream that begins with `item` go on with the answer of the one `before`?

        anyway: it does, by the program's word. Where both are of one response, one fold hears both.
        """
        fold = before.fold
        if isinstance(fold, ResponsesFold) and fold.goes_on(item):
            self.progress.fold = fold
            fold.resume()
            return True
        self._goes_on = anyway
        return anyway

    @property
    def session_id(self) -> str | None:
        """The reply's."""
        return None if self.reply is None else self.reply.session_id

    def is_continued_by(self, item: Any) -> bool:
        """Does a body that begins so go on with the response that was cut here?"""
        fold, reply = self.progress.fold, self.reply
        if not isinstance(fold, ResponsesFold) or reply is None or reply._stream.terminal:
            return False
        return fold.goes_on(item)

    def let_go(self) -> None:
        """Nobody takes it up again."""
        if self.reply is not None:
            let_go(self.reply._link, self.reply._stream)

    def _stays_open(self) -> bool:
        """The reply of a response that was cut, and that may be taken up again, does."""
        fold = self.progress.fold
        if self._cut is None or self.reply is None or not isinstance(fold, ResponsesFold):
            return False
        if fold.failure is not None or self.progress.is_lost or not fold.response_id:
            return False
        if not (fold.is_in_background or self._may_go_on()):
            return False
        self.reply._stream.lingers = True
        self._cut.wait(fold.response_id, self)
        return True

    def _take_up(self, item: Any) -> Fold | None:
        """Go on with the reply of the response that was cut, where `item` is behind that."""
        if self._cut is None or self._taken_up is None or self.reply is not None:
            return None
        before = self._cut.take(self._taken_up, item)
        if before is None or before.reply is None:
            return None
        fold = before.progress.fold
        if isinstance(fold, ResponsesFold):
            self.reply, self._sink = before.reply, before._sink
            self.reply._stream.failure, self.reply._stream.lingers = None, False
            self.progress.fold = self._body.fold = fold
            fold.resume()
        return fold

    def chunk(self, body: bytes) -> None:
        """The next bytes of the body, before the program sees them."""
        if self._is_done:
            return
        try:
            for item in self._body.feed(body):
                self._take(self._body.fold, item)
            if self._body.is_over and not self._is_done:
                self._ended()
        except Exception as error:
            self._give_up(error)

    def item(self, item: Any) -> None:
        """The next event as the SDK made it, before the program sees it."""
        if self._is_done:
            return
        fold, sink = self.progress.fold, self._sink
        if fold is None or sink is None:
            self._first_item(item)
            return
        # As `_take`, without a further call: nearly all events come here, from cold caches.
        try:
            fold.take(item, sink)
        except Exception:
            self._passed_over()
        if fold.is_ended or fold.failure is not None:
            self._guarded(self._over, fold)

    def _first_item(self, item: Any) -> None:
        try:
            fold = self.progress.fold or fold_for(item)
            if fold is None:
                self._unread += 1
                if self._unread == 1:
                    if self.reply is not None:
                        self.reply._stream.is_whole = None  # where it ends is not known here
                    _log.warning(
                        "a stream is not recorded: what it yields (%s) has no shape that walld"
                        " knows; tee() takes what the SDK returns for stream=True",
                        type(item).__qualname__,
                    )
            else:
                self._take(fold, item)
        except Exception as error:
            self._give_up(error)

    def ended(self) -> None:
        """The body ended by itself."""
        if not self._is_done:
            self._guarded(self._ended)

    def _ended(self) -> None:
        for item in self._body.rest():
            self._take(self._body.fold, item)
        if self._is_done:
            return
        if self.progress.is_whole:
            self._end()
        elif self.progress.fold is None and self._unread:
            self._is_done = True
            is_empty = self.reply is not None and self.reply._stream.next_seq <= 1
            self._count_unread()
            if is_empty and self.reply is not None:
                about = (
                    f"none of the {self._unread} events of the stream is of a wire that walld knows"
                )
                self.reply._fail_at_end(about, kind="not_understood")
        elif self._is_known():
            self._fail(self._complaint() or NO_TERMINAL)

    def broke(self, error: BaseException) -> None:
        """The body ended in an exception, which the program gets."""
        self.progress.is_broken = True
        if not self._is_done:
            self._guarded(self._broke, error)

    def _broke(self, error: BaseException) -> None:
        if (complaint := self._complaint()) is not None and self._is_known():
            self._fail(complaint)
        elif self._is_known():
            self._is_done = True
            self._count_unread()
            if self.reply is None:
                return
            self._told_end(*ending_of(error))
            if self._owns and not self._stays_open():
                self.reply.__exit__(type(error), error, None)
            elif isinstance(error, Exception) and type(error).__name__ != "CancelledError":
                self.reply._fail_at_end(message_of(error), kind=type(error).__name__)

    def closed(self) -> None:
        """The program reads no further."""
        if not self._is_done:
            self._guarded(self._closed)

    def _closed(self) -> None:
        if self._body.is_torn and self._is_known():
            self._fail(self._complaint() or NOT_JSON)
        elif self.progress.is_whole:
            self._end()
        elif (complaint := self._complaint()) is not None and self._is_known():
            self._fail(complaint)
        elif self._owns and self.reply is not None:
            self._is_done = True
            self._count_unread()
            self._told_end("cancelled")
            if not self._stays_open():
                self.reply.cancel("the program closed the stream before its end")

    def _complaint(self) -> Failure | None:
        """What the provider said of a failure without ending the answer."""
        fold = self.progress.fold
        return self._body.complaint or (None if fold is None else fold.complaint)

    def _guarded(self, act: Callable[..., None], *args: object) -> None:
        try:
            act(*args)
        except Exception as error:
            self._give_up(error)

    def _is_known(self) -> bool:
        """Is there a reply, or should there be one? A body of a model that says nothing at all and
        ends is a failure worth keeping; a stranger's, or one that was to go on, is none.
        """
        is_answer = self._body.is_answer and self._taken_up is None
        if self.reply is None and is_answer and not self._is_done:
            self._begin()
        return self.reply is not None

    def _begin(self) -> None:
        self.reply = None if self._open is None else self._open()
        if self.reply is None:
            self._is_done = True
        else:
            self._sink = self._effects.sink(self.reply)

    def _take(self, fold: Fold | None, item: Any) -> None:
        if self._is_done or fold is None:
            return
        is_first = self.progress.fold is not fold
        if is_first and (known := self._take_up(item)) is not None:
            fold, is_first = known, False
        self.progress.fold = fold
        if self.reply is None:
            self._begin()
        if self._sink is None:
            return
        if is_first:
            self._know(fold)
        try:
            fold.take(item, self._sink)
        except Exception:
            self._passed_over()
        if fold.is_ended or fold.failure is not None:
            self._over(fold)

    def _passed_over(self) -> None:
        self._unread += 1
        if self._unread == 1:
            _log.warning("an event of an answer is passed over", exc_info=True)

    def _over(self, fold: Fold) -> None:
        if fold.failure is not None:
            self._fail(fold.failure)
        else:
            self._end()

    def _end(self) -> None:
        self._is_done = True
        self._count_unread()
        if self.reply is None:
            return
        self._told_end("complete")
        if self._owns:
            self.reply.end()
        else:
            self.reply._stream.is_whole = None

    def _fail(self, failure: Failure) -> None:
        self._is_done = True
        self.progress.is_broken = True
        self._count_unread()
        if self.reply is not None:
            self._told_end("error", failure.kind, failure.message)
            is_end = self._owns and not self._stays_open()
            fail = self.reply.error if is_end else self.reply._fail_at_end
            fail(failure.message, kind=failure.kind, detail=failure.detail)

    def _know(self, fold: Fold) -> None:
        fold.model.is_again = self._goes_on
        try:
            fold.model.know(**self._about())
        except Exception:
            _log.warning("what is known of a model call is passed over", exc_info=True)

    def _told_end(self, status: str, kind: str | None = None, message: str = "") -> None:
        """What the model took, and how its call ended."""
        if self.reply is not None and self.progress.fold is not None:
            self.progress.fold.model.end(self.reply.event, status, kind, message)

    def _count_unread(self) -> None:
        fold = self.progress.fold
        odd = self._body.unread + (0 if fold is None else fold.odd_events())
        if odd and not self._unread:
            _log.warning("of %d events of an answer something is passed over", odd)
        if (unread := self._unread + odd) and self.reply is not None:
            self.reply.event("unread", {"events": unread})

    def _give_up(self, error: Exception) -> None:
        _log.exception("an answer is recorded no further: walld's adapter failed on it")
        self.progress.is_lost = True
        try:
            self._fail(Failure(f"{type(error).__name__}: {error}", "adapter_error"))
        except Exception:  # of the application's redact: what it must see cannot be said
            if self._owns and self.reply is not None:
                self.reply.cancel("adapter_error")


def ending_of(error: BaseException) -> tuple[str, str, str]:
    """Status, kind and message of a call that an exception ended."""
    kind = type(error).__name__
    if isinstance(error, Exception) and kind != "CancelledError":
        return "error", kind, message_of(error)
    return "cancelled", kind, ""
