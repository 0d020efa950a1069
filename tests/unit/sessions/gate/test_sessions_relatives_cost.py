"""What a fork and an import look at grows as the session does, wherever lines of it are lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import msgspec
import pytest
from session_log import INTENT, Log

from walld.sessions.gate.fork import forked, left_behind
from walld.sessions.gate.imported import settled_there, untold, untold_files
from walld.sessions.gate.resume import resume
from walld.sessions.state.events import Event

FEW, MANY = 40, 320
Look = Callable[[list[Event], list[Event]], object]


def observed(calls: int) -> list[Event]:
    """Turns of a call each, of which somebody said what became of it."""
    log = Log()
    for number in range(calls):
        turn = f"t{number}"
        log.submit(turn)
        log.tool(turn, "c", **INTENT)
        log.add("observation", {"call_id": "c", "text": "seen"}, turn=turn)
    return log.events


def with_holes(events: list[Event]) -> list[Event]:
    """A line is lost before each of these words."""
    lost, made = 0, []
    for event in events:
        lost += event.type == "observation"
        made.append(msgspec.structs.replace(event, seq=event.seq + lost))
    return made


def steps(look: Look, calls: int) -> int:
    """Functions that were called: what a machine is busy with decides nothing."""
    source, count = observed(calls), 0
    copy = with_holes(source)

    def called(_frame: FrameType, kind: str, _argument: object) -> None:
        nonlocal count
        count += kind == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        look(source, copy)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "look",
    [
        lambda source, copy: untold(source, len(source), copy),
        lambda source, copy: untold(copy, copy[-1].seq, source),
        lambda source, copy: settled_there(source, len(source), copy),
        untold_files,
        lambda _source, copy: left_behind(copy, forked(copy)),
        lambda _source, copy: resume(copy),
    ],
)
def test_eight_times_the_calls_are_some_eight_times_the_steps(look: Look) -> None:
    few, many = steps(look, FEW), steps(look, MANY)
    assert many < few * (MANY // FEW) * 1.5, (few, many)
