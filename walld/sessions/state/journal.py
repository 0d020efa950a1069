"""Turns and tool calls of a session: open ones in memory, finished ones as bytes.

Owns: which turns and calls there are, and by which message id and stream id. Refuses: their
transitions (`turns.py`, `tools.py`), who may come next (`session_state.py`).

Invariants: a turn is at rest when it has ended and each of its calls is closed. `pack` and
`changes` put those to rest; asking for one wakes it, with its calls, and changes nothing. A pack
and the changes behind it, added in order, are what they were taken of. What a turn at work costs
does not grow with its replies: changes say those that came since the last ones.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from walld.sessions.state.hash_index import Records, RecordsBlock, records_since
from walld.sessions.state.packed import Packing
from walld.sessions.state.tools import ToolState
from walld.sessions.state.turns import TurnState

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from walld.sessions.state.turns import TurnMark

__all__ = ["Journal", "JournalPack"]


class JournalPack(msgspec.Struct, array_like=True):
    """turns, tools: at work; of changes with the replies that came since. rest: turn id -> turn and
    calls. message_ids, stream_ids: -> turn id, at rest. rested: ids of the turns in `rest`; of
    changes alone.
    """

    turns: list[TurnState]
    tools: list[tuple[str, str, ToolState]]
    rest: RecordsBlock
    message_ids: RecordsBlock
    stream_ids: RecordsBlock
    rested: list[str]


class _Rested(NamedTuple):
    """What was put to rest: turn id -> record, and what leads to it."""

    turns: dict[str, bytes]
    message_ids: dict[str, bytes]
    stream_ids: dict[str, bytes]


class _AtRest(msgspec.Struct, array_like=True):
    turn: TurnState
    tools: dict[str, ToolState]


_at_rest: Final = Packing(_AtRest, "turn")


class Journal:
    """See the top."""

    __slots__ = (
        "_message_ids",
        "_named",
        "_rest",
        "_said",
        "_stream_ids",
        "_streamed",
        "_tools",
        "_turns",
    )

    def __init__(self, packed: JournalPack | None = None) -> None:
        self._turns: dict[str, TurnState] = {}
        self._tools: dict[str, dict[str, ToolState]] = {}
        self._named: dict[str, str] = {}
        """Message id -> turn id, of turns at work."""
        self._streamed: dict[str, list[str]] = {}
        """Stream id -> turn ids, of turns at work; one that was reverted may stand here still."""
        self._said: dict[str, int] = {}
        """Turn id -> how many of its replies a pack or changes have said, of turns at work."""
        self._rest = Records(None if packed is None else packed.rest)
        self._message_ids = Records(None if packed is None else packed.message_ids)
        self._stream_ids = Records(None if packed is None else packed.stream_ids)
        if packed is not None:
            for turn_id, call_id, tool in packed.tools:
                self._tools.setdefault(turn_id, {})[call_id] = tool
            for turn in packed.turns:
                self._come(turn)

    def turn(self, turn_id: str | None) -> TurnState | None:
        """The turn of that id, None where there is none."""
        turn = self._turns.get(turn_id or "")
        return self._wake(turn_id) if turn is None and turn_id else turn

    def tool(self, turn_id: str, call_id: str) -> ToolState | None:
        """The newest call of that id in that turn."""
        self.turn(turn_id)
        return self._tools.get(turn_id, {}).get(call_id)

    def turn_id_of(self, message_id: str | None) -> str | None:
        """The turn that first submitted that message."""
        if not message_id:
            return None
        turn_id = self._named.get(message_id)
        if turn_id is None and (packed := self._message_ids.get(message_id)) is not None:
            turn_id = packed.decode("utf-8", "surrogatepass")
        return turn_id

    def turn_of_stream(self, stream_id: str) -> TurnState | None:
        """The turn with a reply of that stream; of several the one that was submitted first."""
        names = [*self._streamed.get(stream_id, ())]
        if (packed := self._stream_ids.get(stream_id)) is not None:
            names.append(packed.decode("utf-8", "surrogatepass"))
        turns = [turn for name in names if (turn := self.turn(name)) is not None]
        found = [turn for turn in turns if stream_id in turn.stream_ids]
        return min(found, key=lambda turn: turn.submitted_seq, default=None)

    def open_turns(self) -> list[TurnState]:
        """Turns that have not ended, in the order they were submitted."""
        return sorted(
            (turn for turn in self._turns.values() if not turn.ended),
            key=lambda turn: turn.submitted_seq,
        )

    def put_turn(self, turn: TurnState) -> None:
        """A new turn."""
        self._turns[turn.turn_id] = turn
        self.name(turn, *turn.stream_ids)

    def put_back(self, turn_id: str, mark: TurnMark | None) -> None:
        """A turn as it was. None takes the newest turn away again."""
        if mark is not None:
            self._turns[turn_id] = mark.go_back()
            return
        gone = self._turns.pop(turn_id, None)
        self._said.pop(turn_id, None)
        if (
            gone is not None
            and gone.message_id is not None
            and self._named.get(gone.message_id) == turn_id
        ):
            del self._named[gone.message_id]

    def put_tool(self, turn_id: str, call_id: str, tool: ToolState | None) -> None:
        """None takes the newest call away again."""
        tools = self._tools.setdefault(turn_id, {})
        if tool is not None:
            tools[call_id] = tool
        else:
            tools.pop(call_id, None)

    def pack(self) -> JournalPack:
        """All of it; whoever holds a turn asks for it again."""
        self._put_to_rest(self._turns)
        tools = [(turn_id, call_id) for turn_id, calls in self._tools.items() for call_id in calls]
        self._said = {turn_id: len(turn.stream_ids) for turn_id, turn in self._turns.items()}
        return JournalPack(
            _by_submission(self._turns.values()),
            self._at_work(tools),
            self._rest.block(),
            self._message_ids.block(),
            self._stream_ids.block(),
            [],
        )

    def changes(self, turns: Set[str], tools: Set[tuple[str, str]]) -> JournalPack:
        """What became of these turns and calls; whoever holds a turn asks for it again."""
        rested = self._put_to_rest({*turns, *(turn_id for turn_id, _ in tools)})
        at_work = [self._unsaid(turn_id) for turn_id in turns if turn_id in self._turns]
        return JournalPack(
            _by_submission(at_work),
            self._at_work(tools),
            records_since(rested.turns),
            records_since(rested.message_ids),
            records_since(rested.stream_ids),
            list(rested.turns),
        )

    def add(self, changed: JournalPack) -> None:
        """What `changes` gave, behind what it was taken behind."""
        for turn_id in changed.rested:
            turn = self._turns.get(turn_id)
            if turn is not None:
                self._leave(turn)
            self._tools.pop(turn_id, None)
        self._rest.add(changed.rest)
        self._message_ids.add(changed.message_ids)
        self._stream_ids.add(changed.stream_ids)
        for turn in changed.turns:
            known = self.turn(turn.turn_id)  # one that was at rest comes with its calls
            came = turn.stream_ids
            if known is not None:
                known.stream_ids.update(came)
                turn.stream_ids = known.stream_ids
            self._turns[turn.turn_id] = turn
            self._said[turn.turn_id] = len(turn.stream_ids)
            self.name(turn, *came)
        for turn_id, call_id, tool in changed.tools:
            self.turn(turn_id)
            self.put_tool(turn_id, call_id, tool)

    def _put_to_rest(self, turn_ids: Iterable[str]) -> _Rested:
        """Those of these turns that may, with what they are found by."""
        rested = _Rested({}, {}, {})
        known = [turn for one in turn_ids if (turn := self._turns.get(one)) is not None]
        for turn in _by_submission(known):
            turn_id = turn.turn_id
            tools = self._tools.get(turn_id, {})
            if not turn.ended or not all(tool.closed for tool in tools.values()):
                continue
            name = turn_id.encode("utf-8", "surrogatepass")
            rested.turns[turn_id] = self._rest[turn_id] = _at_rest.encode(_AtRest(turn, tools))
            if turn.message_id is not None and self._named.get(turn.message_id) == turn_id:
                rested.message_ids[turn.message_id] = self._message_ids[turn.message_id] = name
            first: dict[bytes, bool] = {name: True}
            for stream_id in turn.stream_ids:
                if self._is_first(turn, stream_id, first):
                    rested.stream_ids[stream_id] = self._stream_ids[stream_id] = name
            self._leave(turn)
            self._tools.pop(turn_id, None)
        return rested

    def _unsaid(self, turn_id: str) -> TurnState:
        """The turn with the replies that came since it was said last; they are said now."""
        turn = self._turns[turn_id]
        count = len(turn.stream_ids)
        came = list(islice(reversed(turn.stream_ids), count - self._said.get(turn_id, 0)))
        self._said[turn_id] = count
        return msgspec.structs.replace(turn, stream_ids=dict.fromkeys(reversed(came)))

    def _at_work(self, tools: Iterable[tuple[str, str]]) -> list[tuple[str, str, ToolState]]:
        found = [
            (turn_id, call_id, tool)
            for turn_id, call_id in tools
            if (tool := self._tools.get(turn_id, {}).get(call_id)) is not None
        ]
        return sorted(found, key=lambda one: min(one[2].seqs.values()))

    def name(self, turn: TurnState, *stream_ids: str | None) -> None:
        """What it is found by, as its replies are; the first turn of a message id keeps it."""
        for stream_id in stream_ids:
            if stream_id is None or stream_id not in turn.stream_ids:
                continue
            names = self._streamed.setdefault(stream_id, [])
            if turn.turn_id not in names:
                names.append(turn.turn_id)
        if turn.message_id is not None and self.turn_id_of(turn.message_id) is None:
            self._named[turn.message_id] = turn.turn_id

    def _come(self, turn: TurnState) -> None:
        """It is at work, and all its replies are said."""
        self._turns[turn.turn_id] = turn
        self._said[turn.turn_id] = len(turn.stream_ids)
        self.name(turn, *turn.stream_ids)

    def _leave(self, turn: TurnState) -> None:
        """It is not at work any more: the blocks have what it is found by."""
        del self._turns[turn.turn_id]
        self._said.pop(turn.turn_id, None)
        if turn.message_id is not None and self._named.get(turn.message_id) == turn.turn_id:
            del self._named[turn.message_id]
        for stream_id in turn.stream_ids:
            others = [one for one in self._streamed.pop(stream_id, ()) if one != turn.turn_id]
            if others:
                self._streamed[stream_id] = others

    def _is_first(self, turn: TurnState, stream_id: str, first: dict[bytes, bool]) -> bool:
        """It was submitted before the turn at rest that the stream id leads to, if one does.

        first: what is known of such turns: one has thousands of replies, and is long to read.
        """
        packed = self._stream_ids.get(stream_id)
        if packed is None:
            return True
        if packed not in first:
            known = self._rest.get(packed.decode("utf-8", "surrogatepass"))
            seq = turn.submitted_seq
            first[packed] = known is None or seq <= _at_rest.decode(known).turn.submitted_seq
        return first[packed]

    def _wake(self, turn_id: str) -> TurnState | None:
        packed = self._rest.get(turn_id)
        if packed is None:
            return None
        found = _at_rest.decode(packed)
        self._turns[turn_id] = found.turn
        self._said[turn_id] = len(found.turn.stream_ids)
        if found.tools:
            self._tools[turn_id] = found.tools
        return found.turn


def _by_submission(turns: Iterable[TurnState]) -> list[TurnState]:
    return sorted(turns, key=lambda turn: turn.submitted_seq)
