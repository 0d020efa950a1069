"""Hooks on bytes: a response of OpenAI that is taken up again adds to the reply that was cut."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
from adapters.replay import Replay
from adapters.trial import wants
from daemon_process import DaemonProcess, until
from test_goes_on import ABOUT, EVENTS, WHOLE, created, end_of, events_of, framed, take

from walld.replies.model_facts import step_records

wants("httpx2", "openai")
openai = importlib.import_module("openai")
httpx2 = importlib.import_module("httpx2")
hooks = importlib.import_module("walld_client.adapters.httpx2")

ONCE = ("complete", False, 1, {0}, WHOLE)


class Hooked:
    """An SDK whose client has the hook, and the replies that it made."""

    def __init__(self, walld: walld_client.Client, daemon: DaemonProcess, url: str) -> None:
        self.walld, self.daemon, self.url = walld, daemon, url
        self.ids: list[str] = []

    def hook(self, make: Callable[..., Any]) -> dict[str, Any]:
        return {"response": [make(self.walld, "s", on_reply=self.ids.append)]}

    def open(self) -> Any:
        http = httpx2.Client(event_hooks=self.hook(hooks.response_hook))
        about = {"base_url": self.url + "/v1", "api_key": "x", "max_retries": 0}
        return openai.OpenAI(http_client=http, **about)

    def found(self, at: int = -1) -> walld_client.PartialReply:
        return self.daemon.arrived(self.ids[at], 0)

    def ended(self, at: int = -1) -> walld_client.PartialReply:
        """Once it is: who lets go of a reply does not wait for it."""

        def found() -> walld_client.PartialReply | None:
            one = self.found(at)
            return None if one.status == "live" else one

        return until(found, f"the end of {self.ids[at]}")


@pytest.fixture
def hooked(walld: walld_client.Client, kept_by: DaemonProcess, replay: Replay) -> Iterator[Hooked]:
    made = Hooked(walld, kept_by, replay.url)
    yield made
    for stream_id in made.ids:
        walld.release(stream_id)


@pytest.fixture
def sdk(hooked: Hooked) -> Iterator[Any]:
    with hooked.open() as made:
        yield made


def again(sdk: Any, after: int, response_id: str = "resp_1") -> str:
    return take(sdk.responses.retrieve(response_id, stream=True, starting_after=after))


@pytest.mark.parametrize("cut", range(2, 6))
@pytest.mark.parametrize("way", ["cut", "eof"])
def test_behind_the_last_event(
    hooked: Hooked, replay: Replay, sdk: Any, cut: int, way: str
) -> None:
    replay.bodies[f"bytes {way}{cut}:{way}{cut}"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    take(created(sdk, f"bytes {way}{cut}:{way}{cut}"))
    assert hooked.found().status == "live"
    again(sdk, cut - 1)
    assert len(hooked.ids) == 1
    found = hooked.ended()
    assert end_of(found) == ONCE
    assert found.finish_reason == "completed"
    (record,) = step_records(found, set()).values()
    assert (record["status"], record.get("error_class")) == ("complete", None)


def test_twice_once_from_before_and_once_by_a_program_that_stops(
    hooked: Hooked, replay: Replay, sdk: Any
) -> None:
    replay.bodies["bytes twice:cut3"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    take(created(sdk, "bytes twice:cut3"))
    left = sdk.responses.retrieve("resp_1", stream=True, starting_after=2)
    next(left)
    left.close()
    replay.responses["resp_1"] = framed(EVENTS[:5])
    again(sdk, 1)
    replay.responses["resp_1"] = []
    again(sdk, 4)
    replay.responses["resp_1"] = framed(EVENTS)
    again(sdk, 5)
    assert len(hooked.ids) == 1
    assert end_of(hooked.ended()) == ONCE


def test_by_an_asynchronous_client(hooked: Hooked, replay: Replay) -> None:
    replay.bodies["bytes async:cut4"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)

    async def run() -> None:
        http = httpx2.AsyncClient(event_hooks=hooked.hook(hooks.async_response_hook))
        about = {"base_url": hooked.url + "/v1", "api_key": "x", "max_retries": 0}
        async with openai.AsyncOpenAI(http_client=http, **about) as sdk:
            asked = {"model": "bytes async:cut4", "input": "x", "background": True}
            with pytest.raises(openai.APIError):
                async for _ in await sdk.responses.create(stream=True, **asked):
                    pass
            more = await sdk.responses.retrieve("resp_1", stream=True, starting_after=3)
            async for _ in more:
                pass

    asyncio.run(run())
    assert len(hooked.ids) == 1
    assert end_of(hooked.ended()) == ONCE


def test_a_response_that_says_itself_that_it_runs_in_the_background(
    hooked: Hooked, replay: Replay, sdk: Any
) -> None:
    """A gateway may have asked for that."""
    events = events_of("resp_1", ["Hello ", "world, ", "all ", "of it."])
    events[0]["response"] = ABOUT | events[0]["response"] | {"background": True}
    replay.bodies["bytes own:cut4"] = framed(events)
    replay.responses["resp_1"] = framed(events)
    take(sdk.responses.create(model="bytes own:cut4", input="x", stream=True))
    again(sdk, 3)
    assert len(hooked.ids) == 1
    assert end_of(hooked.ended()) == ONCE


def test_one_that_does_not_run_in_the_background_has_ended(
    hooked: Hooked, replay: Replay, sdk: Any
) -> None:
    replay.bodies["bytes plain:cut4"] = framed(EVENTS)
    take(sdk.responses.create(model="bytes plain:cut4", input="x", stream=True))
    assert hooked.found().status == "errored"


def test_what_begins_anew_is_a_reply_of_its_own(hooked: Hooked, replay: Replay, sdk: Any) -> None:
    replay.bodies["bytes first:eof4"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(events_of("resp_1", ["Other ", "words."]))
    take(created(sdk, "bytes first:eof4"))
    again(sdk, -1)
    assert len(hooked.ids) == 2
    cut = hooked.ended(0)
    assert cut.error is not None
    assert (cut.status, cut.error.kind, cut.text) == (
        "errored", "no_terminal_event", "Hello world, ",
    )  # fmt: skip
    assert end_of(hooked.ended(1)) == ("complete", False, 1, {0}, "Other words.")


def test_the_next_model_call_of_its_session_ends_what_was_cut(
    hooked: Hooked, replay: Replay, sdk: Any
) -> None:
    replay.bodies["bytes given up:cut4"] = framed(EVENTS)
    take(created(sdk, "bytes given up:cut4"))
    replay.bodies["bytes next"] = framed(events_of("resp_2", ["Bye."], "msg_2"))
    take(created(sdk, "bytes next"))
    assert (hooked.ended(0).status, hooked.ended(0).text) == ("errored", "Hello world, ")
    assert end_of(hooked.ended(1)) == ("complete", False, 1, {0}, "Bye.")


def test_a_program_that_has_its_copy_releases_what_was_cut(
    hooked: Hooked, replay: Replay, sdk: Any
) -> None:
    replay.bodies["bytes copy:cut4"] = framed(EVENTS)
    replay.responses["resp_1"] = framed(EVENTS)
    take(created(sdk, "bytes copy:cut4"))
    assert hooked.walld.release(hooked.ids[0])
    until(lambda: hooked.daemon.reader.recover(stream_id=hooked.ids[0]) is None, "its release")
    again(sdk, 3)
    assert end_of(hooked.ended(1))[-1] == "all of it."


def test_a_response_that_failed_has_ended(hooked: Hooked, replay: Replay, sdk: Any) -> None:
    failed = {
        "id": "resp_1",
        "status": "failed",
        "error": {"code": "server_error", "message": "no"},
    }
    end = {"type": "response.failed", "sequence_number": 4, "response": ABOUT | failed}
    replay.bodies["bytes failed"] = framed([*EVENTS[:4], end])
    take(created(sdk, "bytes failed"))
    assert hooked.found().status == "errored"


def test_who_lets_go_of_the_client_lets_go_of_what_was_cut(hooked: Hooked, replay: Replay) -> None:
    replay.bodies["bytes gone:cut4"] = framed(EVENTS)
    with hooked.open() as sdk:
        take(created(sdk, "bytes gone:cut4"))
    del sdk
    importlib.import_module("gc").collect()
    assert hooked.ended().status == "errored"
