"""Calls of several requests: one time for all of them, and an upload that others help with."""

from __future__ import annotations

import socket
import time
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from walld_client.errors import NotDurable, Refused, Unavailable
from walld_client.limits import ARTIFACT_CHUNK_BYTES
from walld_client.query.query import Query
from walld_client.session import artifacts
from walld_client.session.session_steps import SessionSteps
from walld_client.session.submitting import submit
from walld_client.steps import Asked, Done, Steps
from walld_client.wire import messages as wire

PIECES = 40
BYTES = bytes(PIECES * ARTIFACT_CHUNK_BYTES)


def drive(steps: Steps[Any], given: list[float]) -> None:
    """Answer all but the append. given: the time each request has."""
    step = next(steps)
    while True:
        if isinstance(step, Done):
            step = steps.send(step.done())
            continue
        assert step.timeout is not None
        given.append(step.timeout)
        request = step.make(1)
        if isinstance(request, wire.PutArtifact):
            step = steps.send(msgspec.msgpack.encode(True))
        elif isinstance(request, wire.Project):
            facts = b'{"turn_id":"t-1","message_id":"m"}'
            step = steps.send(msgspec.msgpack.encode((facts, b"[]")))
        else:
            step = steps.throw(Unavailable("no answer"))


@pytest.mark.parametrize("retry_of", [None, "t-1"])
def test_a_submit_has_one_time_for_all_its_requests(
    monkeypatch: pytest.MonkeyPatch, retry_of: str | None
) -> None:
    clock = count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    session = SessionSteps("s", None, lambda one: [], None)
    steps = submit(
        session,
        "x" * 600_000,
        message_id=None,
        retry_of=retry_of,
        stream_id=None,
        attachments=[b"a", b"b"],
        model=None,
        calls=None,
        timeout=100.0,
        meta={},
    )
    given: list[float] = []
    with pytest.raises(NotDurable):
        drive(steps, given)
    assert len(given) == 4 + (retry_of is not None)
    assert given == sorted(given, reverse=True), "what is left grows less"
    assert all(one < 100 for one in given)


def test_a_daemon_that_does_not_greet_is_waited_for_no_longer_than_was_said(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        query = Query(lambda: path, 60.0)
        with pytest.raises(Unavailable, match=r"within 0\.\d+ s"):
            query.ask(lambda number: wire.Sessions(number, ""), 0.1)
        query.close()


def upload(answers: Any) -> list[int]:
    """The offsets of an upload's pieces. answers: by number and offset, True, False or an offset
    to go on from.
    """
    steps: Steps[dict[str, Any]] = artifacts.upload("s", BYTES)
    offsets: list[int] = []
    try:
        step = next(steps)
        while True:
            if isinstance(step, Done):
                step = steps.send(step.done())
                continue
            assert isinstance(step, Asked)
            request = step.make(1)
            assert isinstance(request, wire.PutArtifact)
            offsets.append(request.offset)
            answer = answers(len(offsets), request.offset)
            if isinstance(answer, bool):
                step = steps.send(msgspec.msgpack.encode(answer))
            else:
                step = steps.throw(Refused("artifact_offset", str(request.offset), str(answer)))
    except StopIteration:
        return offsets


def test_an_upload_goes_on_from_where_another_of_the_same_bytes_is() -> None:
    def behind(_number: int, offset: int) -> bool | int:
        later = offset + ARTIFACT_CHUNK_BYTES
        return later if later < len(BYTES) else True

    assert upload(behind) == list(range(0, len(BYTES), ARTIFACT_CHUNK_BYTES))


def test_an_upload_that_others_begin_anew_goes_on() -> None:
    def begun_anew(number: int, offset: int) -> bool | int:
        if number <= 2 * PIECES and number % 2 == 0:
            return 0
        return offset + ARTIFACT_CHUNK_BYTES >= len(BYTES)

    assert upload(begun_anew)[-1] == len(BYTES) - ARTIFACT_CHUNK_BYTES


def test_an_upload_that_only_goes_back_ends() -> None:
    with pytest.raises(Refused, match="artifact_offset"):
        upload(lambda number, offset: 0)
