"""Folds the items of a stream into a reply.

Owns: what each event does to a reply. Refuses: files, clocks, liveness (arguments say), whether
the reply is whole (`verdict.py`), what counts as seen already (`merge.py`).

Invariants: pure, and order is by seq alone: the same items give the same reply, however they are
cut into runs, copied or sent again. The fold of a prefix is a prefix: later events only add
segments, lengthen the last one, fill in a tool call, or take a step over into the next attempt.
Nothing is joined over a missing seq: a `gap` segment stands there. A call without a result is
`unknown`, never done.

What is said by a call's id adds to it while its answer goes on. Some servers, and models, number
calls anew in each answer: behind a step, its result, or the provider's finish the same id is
another call. Behind a finish alone, pieces of arguments that were not whole, and the call said
again in the same words, are still its own: who writes by hand may say the finish of a chunk before
the rest of it.

An attempt is the whole run anew: Retry starts again at step 0, and what came before keeps its
segments under its own attempt number. With `step` it is the step under way anew: the segments of
the steps before it go over into the new attempt, so an attempt number is only final with the fold.
What a step was told at its beginning is of each attempt in which it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import msgspec
from walld_client.encoding.model_words import TOLD_IN
from walld_client.wire import messages as wire

from walld.replies.merge import in_order
from walld.replies.segment_builder import SegmentBuilder
from walld.replies.verdict import Evidence, partial_reason
from walld.wal.records import Begin, Happened, Item, Text, Thought

__all__ = ["GapVerdicts", "ReplyFold", "fold", "worst_word"]

GapVerdicts = Callable[[int, int], str]
"""(first missing seq, last missing seq) -> dropped | torn | corrupt | unknown."""

_WORDS: Final = ("dropped", "torn", "unknown", "corrupt")
_PIECE_BYTES: Final = 1024
"""Memory of a segment with its part of a message: 1,000 calls and as many texts took 2.2 MB."""
_BYTES_BYTES: Final = 64
_MARK_BYTES: Final = 256
"""Of where a step or an attempt begins."""
_TEXT_TIMES: Final = 5
"""A text is kept as bytes, and in its message with up to four bytes a character."""
_KINDS: Final = {Text.kind: "text", Thought.kind: "reasoning"}


def fold(
    begin: Begin,
    items: Iterable[Item],
    *,
    owner_alive: bool,
    live: bool,
    lost_reason: str | None,
    gap_verdicts: GapVerdicts | None = None,
    known_seq: int = 0,
    ended_before_retry: set[int] | None = None,
) -> wire.Recovered:
    """The reply that `begin` opened, as far as `items` tell it.

    live: its process may still add to it. lost_reason: why a reply without an end has none (used
    where it is not live). known_seq: it is known to have got that far, also where `items` do not.
    ended_before_retry: takes the first seq of each segment whose step had ended, by a step behind
    it or by the provider's finish, when a retry began it anew.
    Raises FormatError for a run that cannot be cut where it must.
    """
    reply = ReplyFold(begin, gap_verdicts or _unknown)
    reply.take_all(items)
    if ended_before_retry is not None:
        ended_before_retry |= reply.ended_before_retry
    return reply.recovered(
        owner_alive=owner_alive, live=live, lost_reason=lost_reason, known_seq=known_seq
    )


def worst_word(words: Iterable[str]) -> str:
    """What a gap is put down to of which several are true."""
    return max(words, key=_WORDS.index)


def _gap_of(piece: SegmentBuilder) -> wire.Gap:
    assert piece.verdict is not None
    return wire.Gap(piece.first_seq, piece.last_seq, piece.verdict)


def _unknown(_first_seq: int, _last_seq: int) -> str:
    return "unknown"


class ReplyFold:
    """The state of one fold, which may be told at any time and go on.

    not with_text: of texts only whether they are blank is kept, of reasoning and custom events
    nothing; what the reply says of its calls, and of the model's, is the same.
    """

    def __init__(self, begin: Begin, gap_verdicts: GapVerdicts, *, with_text: bool = True) -> None:
        self.begin = begin
        self.with_text = with_text
        self.held_bytes = 0
        """About what it, and what is made of it, takes of memory."""
        self.ended_before_retry: set[int] = set()
        self.gap_verdicts = gap_verdicts
        self.session_id = begin.session_id
        self.pieces: list[SegmentBuilder] = []
        self.standing: list[SegmentBuilder] = []
        """Those of this attempt's earlier steps. Numbered when the attempt ends, not at each
        Retry: whoever writes the events must not be able to choose how long a fold takes."""
        self.under_way: list[SegmentBuilder] = []
        """Those of the step under way."""
        self.run: SegmentBuilder | None = None
        """The text or reasoning that the next token may join."""
        self.calls: dict[str, SegmentBuilder] = {}
        """The newest call of each id."""
        self.open_calls: dict[int, SegmentBuilder] = {}
        """This attempt's calls without a result, by first seq."""
        self.open_by_name: dict[str | None, list[SegmentBuilder]] = {}
        """The same by name; closed and renamed ones are dropped when met."""
        self.gaps: list[wire.Gap] = []
        self.over: list[wire.StepBegun] = []
        """Where steps of earlier attempts began."""
        self.begun: list[wire.StepBegun] = []
        """Where steps of this attempt began, their number still to come."""
        self.retries: list[wire.Retried] = []
        self.step = self.attempt = self.events = self.last_seq = 0
        self.last_event_at_ms = begin.at_ms
        self.status: str | None = None
        self.lost_reason: str | None = None
        self.error: wire.ReplyError | None = None
        self.finish_reason: str | None = None
        self.finish_seen = self.said_since_finish = self.finish_expected = False
        self.finish_seq = 0
        """Of the newest finish."""

    def take_all(self, items: Iterable[Item]) -> None:
        """Those behind what it has. Raises FormatError for a run that cannot be cut there."""
        for item in in_order(items, self.last_seq):
            self._take(item)

    def _take(self, item: Text | Happened) -> None:
        """The next event or run. After a terminal only its seq counts."""
        if isinstance(item, Text):
            first_seq, last_seq = item.first_seq, item.last_seq
        else:
            first_seq = last_seq = item.event.seq
        if self.status is None:
            at_ms = self.begin.at_ms + item.after_ms
            if first_seq > self.last_seq + 1:
                self._gap(self.last_seq + 1, first_seq - 1, at_ms)
            self.last_event_at_ms = at_ms
            if isinstance(item, Text):
                self._say(_KINDS[item.kind], first_seq, last_seq, at_ms, item.text, None)
            else:
                _TAKERS[type(item.event)](self, item.event, at_ms)
        self.events += last_seq - first_seq + 1
        self.last_seq = last_seq

    def recovered(
        self, *, owner_alive: bool, live: bool, lost_reason: str | None, known_seq: int = 0
    ) -> wire.Recovered:
        """The reply as it stands. known_seq: it is known to have got that far."""
        status, last_seq, gaps = self.status, self.last_seq, list(self.gaps)
        for piece in self.standing:
            piece.attempt = self.attempt
        segments = [piece.segment() for piece in self.pieces]
        if status is None:
            status = "live" if live else "crashed"
            lost_reason = None if live else lost_reason
            if known_seq > last_seq:  # missing at the end: a gap like any other
                piece = self._missing(last_seq + 1, known_seq, self.last_event_at_ms)
                segments.append(piece.segment())
                gaps.append(_gap_of(piece))
                last_seq = known_seq
        else:
            lost_reason = self.lost_reason
        reason = partial_reason(
            Evidence(
                ended_clean=status == "complete",
                gap=bool(gaps),
                finish_seen=self.finish_seen,
                finish_reason=self.finish_reason,
                said_since_finish=self.said_since_finish,
                finish_expected=self.finish_expected,
                segments=[one for one in segments if one.attempt == self.attempt],
                step=self.step,
            )
        )
        return wire.Recovered(
            stream_id=self.begin.stream_id,
            session_id=self.session_id,
            uid=self.begin.uid,
            turn_id=self.begin.turn_id,
            parent=self.begin.parent,
            meta=self.begin.meta,
            status=status,
            owner_alive=owner_alive,
            lost_reason=lost_reason,
            error=self.error,
            finish_reason=self.finish_reason,
            started_at_ms=self.begin.at_ms,
            last_event_at_ms=self.last_event_at_ms,
            last_seq=last_seq,
            gaps=gaps,
            attempts=self.attempt + 1,
            events=self.events,
            partial=reason is not None,
            partial_reason=reason,
            segments=segments,
            app=self.begin.app,
            steps=self.over + self._begun_in(self.attempt),
            retries=self.retries[:],
        )

    # --- pieces -----------------------------------------------------------------------------------

    def _open(self, kind: str, seq: int, at_ms: int) -> SegmentBuilder:
        piece = SegmentBuilder(kind, self.step, self.attempt, seq, at_ms)
        self._add(piece)
        return piece

    def _add(self, piece: SegmentBuilder) -> None:
        self.pieces.append(piece)
        self.under_way.append(piece)
        self.run = None
        self.held_bytes += _PIECE_BYTES

    def _missing(self, first_seq: int, last_seq: int, at_ms: int) -> SegmentBuilder:
        piece = SegmentBuilder("gap", self.step, self.attempt, first_seq, at_ms)
        piece.last_seq = last_seq
        piece.verdict = self.gap_verdicts(first_seq, last_seq)
        return piece

    def _gap(self, first_seq: int, last_seq: int, at_ms: int) -> None:
        piece = self._missing(first_seq, last_seq, at_ms)
        self._add(piece)
        self.gaps.append(_gap_of(piece))

    def _say(
        self, kind: str, first_seq: int, last_seq: int, at_ms: int, text: bytes, info: bytes | None
    ) -> None:
        """Text or reasoning. What the application said about a token (`info`) is not mixed up."""
        run = self.run
        if run is None or run.kind != kind or run.info != info:
            run = self._open(kind, first_seq, at_ms)
            run.info = info
            self._hold(info)
            self.run = run
        if self.with_text:
            run.text.append(text)
            self.held_bytes += _TEXT_TIMES * len(text) + _BYTES_BYTES
        elif kind == "text":
            self.held_bytes += 3 * run.hear(text)
        run.last_seq = last_seq
        self.said_since_finish = True

    # --- events -----------------------------------------------------------------------------------

    def _token(self, event: wire.Token, at_ms: int) -> None:
        self._say("text", event.seq, event.seq, at_ms, event.text, event.info)

    def _reasoning(self, event: wire.Reasoning, at_ms: int) -> None:
        self._say("reasoning", event.seq, event.seq, at_ms, event.text, event.info)

    def _tool(self, event: wire.Tool, at_ms: int) -> None:
        """A call, or an update of one."""
        piece = self._going_on(event.call_id)
        if piece is not None and self.finish_seq > piece.last_seq:
            piece = piece if piece.says(event.name, event.arguments) else None
        piece = piece or self._call(event.call_id, event.seq, at_ms)
        piece.last_seq = event.seq
        if piece.name != event.name:
            piece.name = event.name
            self._hold(event.name)
            self.open_by_name.setdefault(event.name, []).append(piece)
        if event.arguments is not None:
            self._hold(event.arguments)
            piece.arguments = [event.arguments]
            piece.truncated_from = event.truncated_from
        if event.info is not None:
            self._hold(event.info)
            piece.info = event.info
        self._called()

    def _tool_arguments(self, event: wire.ToolArguments, at_ms: int) -> None:
        piece = self._going_on(event.call_id)
        if piece is not None and self.finish_seq > piece.last_seq:
            piece = None if piece.was_whole() else piece
        piece = piece or self._call(event.call_id, event.seq, at_ms)
        piece.last_seq = event.seq
        if piece.arguments is None:
            piece.arguments = []
        self._hold(event.delta)
        piece.arguments.append(event.delta)
        self._called()

    def _tool_result(self, event: wire.ToolResult, at_ms: int) -> None:
        piece = self._answered(event)
        if piece is None:
            piece = self._open("tool_result", event.seq, at_ms)
            piece.call_id, piece.name = event.call_id, event.name
            self._hold(event.call_id)
            self._hold(event.name)
        self.run = None  # text after a result is not the text before it
        piece.last_seq = event.seq
        self._hold(event.result)
        piece.result = event.result
        piece.result_json = event.json
        piece.outcome = "failed" if event.failed else "done"
        self.open_calls.pop(piece.first_seq, None)
        if event.info is not None:
            self._hold(event.info)
            if piece.kind == "tool":
                piece.result_info = event.info
            else:
                piece.info = event.info
        if event.truncated_from:
            piece.truncated_from = event.truncated_from

    def _next_step(self, event: wire.Step, at_ms: int) -> None:
        self._next_message()
        self.step += 1
        self.standing += self.under_way
        self.under_way.clear()
        self._hold(event.info)
        self.held_bytes += _MARK_BYTES
        self.begun.append(wire.StepBegun(self.attempt, self.step, event.seq, at_ms, event.info))

    def _custom(self, event: wire.Custom, at_ms: int) -> None:
        piece = self._open("custom", event.seq, at_ms)
        piece.name = event.kind
        self._hold(event.kind)
        if self.with_text or event.kind in TOLD_IN:
            self._hold(event.payload)
            piece.result = event.payload
        piece.truncated_from = event.truncated_from

    def _retry(self, event: wire.Retry, at_ms: int) -> None:
        has_finished = self.finish_seen and not self.said_since_finish
        ended = [*([] if event.step else self.standing), *(self.under_way * has_finished)]
        self.ended_before_retry.update(piece.first_seq for piece in ended)
        self._next_message()
        over = self.under_way
        if not event.step:
            over = self.standing + over
            self.standing.clear()
            self.over += self._begun_in(self.attempt)
            self.begun.clear()
            self.step = 0
        elif self.begun:  # the step itself begins in both
            self.over.append(msgspec.structs.replace(self.begun[-1], attempt=self.attempt))
        for piece in over:
            piece.attempt = self.attempt
            piece.is_over = True
        for piece in over:
            if piece.kind == "tool":
                self._call_is_over(piece)
        self.under_way = []
        self.attempt += 1
        self._hold(event.reason)
        self.held_bytes += _MARK_BYTES
        self.retries.append(wire.Retried(self.attempt, event.seq, at_ms, event.reason, event.step))

    def _move(self, event: wire.Move, _at_ms: int) -> None:
        self.session_id = event.session_id

    def _finish(self, event: wire.Finish, _at_ms: int) -> None:
        self.finish_seq = event.seq
        self.finish_seen = True
        self.said_since_finish = False
        self.finish_reason = event.reason

    def _app_error(self, event: wire.AppError, _at_ms: int) -> None:
        self.status = "errored"
        self.error = wire.ReplyError(event.message, event.kind, event.detail)

    def _end(self, event: wire.End, _at_ms: int) -> None:
        self.status = "complete" if event.clean else "cancelled"
        if not event.clean:
            self.lost_reason = event.reason
        if event.finish_reason is not None:
            self.finish_seen = True
            self.said_since_finish = False
            self.finish_reason = event.finish_reason

    def _nothing(self, _event: wire.Event, _at_ms: int) -> None:
        """Release says nothing about the reply; Start is Begin already."""

    def _unreachable(self, event: wire.Event, _at_ms: int) -> NoReturn:
        raise AssertionError(f"{type(event).__name__} must have become a Text in in_order()")

    # --- what events share ------------------------------------------------------------------------

    def _hold(self, said: bytes | str | None) -> None:
        """As bytes, joined, and as text in a message."""
        if said is not None:
            self.held_bytes += 3 * len(said) + _BYTES_BYTES

    def _begun_in(self, attempt: int) -> list[wire.StepBegun]:
        return [msgspec.structs.replace(one, attempt=attempt) for one in self.begun]

    def _call(self, call_id: str, seq: int, at_ms: int) -> SegmentBuilder:
        piece = self._open("tool", seq, at_ms)
        piece.call_id = call_id
        self._hold(call_id)
        piece.outcome = "unknown"
        before = self.calls.get(call_id)
        piece.replaced = None if before is None or before.is_over else before
        self.calls[call_id] = self.open_calls[piece.first_seq] = piece
        return piece

    def _going_on(self, call_id: str) -> SegmentBuilder | None:
        """The newest call of that id while more may come of it."""
        piece = self.calls.get(call_id)
        if piece is None or piece.is_over or piece.step != self.step:
            return None
        return piece if piece.outcome == "unknown" else None

    def _call_is_over(self, piece: SegmentBuilder) -> None:
        """Its attempt is: it is open no more, and the call that it replaced has its id back."""
        call_id, before = piece.call_id, piece.replaced
        assert call_id is not None
        self.open_calls.pop(piece.first_seq, None)
        if self.calls[call_id] is piece:
            while before is not None and before.is_over:
                before = before.replaced
            self.calls[call_id] = before or piece

    def _called(self) -> None:
        self.run = None  # the same text before and after a call stays two segments
        self.said_since_finish = True

    def _answered(self, event: wire.ToolResult) -> SegmentBuilder | None:
        """The call a result belongs to: by id, else the newest open one of that name."""
        if event.call_id is not None:
            return self.calls.get(event.call_id)
        if event.name is None:
            # Without id and name only a single open call is certain.
            return next(iter(self.open_calls.values())) if len(self.open_calls) == 1 else None
        named = self.open_by_name.get(event.name, [])
        while named:
            piece = named.pop()
            if piece.outcome == "unknown" and piece.name == event.name and not piece.is_over:
                return piece
        return None

    def _next_message(self) -> None:
        self.run = None
        self.finish_expected = self.finish_expected or self.finish_seen
        self.finish_seen = self.said_since_finish = False
        self.finish_reason = None


_TAKERS: Final[dict[type, Callable[..., None]]] = {
    wire.Start: ReplyFold._nothing,
    wire.Token: ReplyFold._token,
    wire.Reasoning: ReplyFold._reasoning,
    wire.Run: ReplyFold._unreachable,
    wire.Tool: ReplyFold._tool,
    wire.ToolArguments: ReplyFold._tool_arguments,
    wire.ToolResult: ReplyFold._tool_result,
    wire.Step: ReplyFold._next_step,
    wire.Custom: ReplyFold._custom,
    wire.Retry: ReplyFold._retry,
    wire.Move: ReplyFold._move,
    wire.Finish: ReplyFold._finish,
    wire.AppError: ReplyFold._app_error,
    wire.End: ReplyFold._end,
    wire.Release: ReplyFold._nothing,
}
