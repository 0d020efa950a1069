"""The checkpointer against the vendor's conformance suite, real graphs and a real daemon."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
import walld_client
from adapters.answers import answer, joined, told
from adapters.examples import check
from adapters.replay import Replay
from adapters.trial import Nursery, kept, wants
from daemon_process import DaemonProcess
from walld_client import aio

wants("langgraph", "langgraph-checkpoint-conformance", "langchain-openai")

from langgraph import graph as graphs  # noqa: E402
from langgraph import types  # noqa: E402
from langgraph.channels.delta import DeltaChannel  # noqa: E402
from langgraph.checkpoint import base, conformance  # noqa: E402
from walld_client.adapters.langgraph import WalldSaver  # noqa: E402

SUITE_TESTS_MIN = 81
"""In langgraph-checkpoint-conformance 0.0.2."""
each_client = pytest.mark.parametrize("client", ["sync", "aio"])


@pytest.fixture(scope="module")
def programs(make_program: Callable[[str], Nursery]) -> Nursery:
    return make_program("langgraph_thread")


# --- the vendor's suite --------------------------------------------------------------------------


@each_client
def test_conformance(
    kept_by: DaemonProcess, client: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every capability, no test left out."""

    @conformance.checkpointer_test(name=f"WalldSaver, {client} client")  # type: ignore[untyped-decorator]
    async def saver() -> AsyncIterator[Any]:
        if client == "aio":
            walld = aio.connect(kept_by.socket_path)
            yield WalldSaver(walld)
            await walld.close()
        else:
            blocking = walld_client.connect(kept_by.socket_path)
            yield WalldSaver(blocking)
            blocking.close()

    report = asyncio.run(conformance.validate(saver))
    results = report.results
    failures = {name: one.failures for name, one in results.items() if one.failures}
    passed = sum(one.tests_passed for one in results.values())
    with capsys.disabled():
        print(f"\nconformance, {client} client: {passed} passed, {len(failures)} failed ", end="")
    assert failures == {}
    assert [name for name, one in results.items() if one.passed is not True] == []
    assert passed >= SUITE_TESTS_MIN


# --- killed in the middle of an answer -----------------------------------------------------------


@pytest.mark.parametrize(
    ("colour", "client"), [("sync", "sync"), ("async", "sync"), ("async", "aio")]
)
def test_what_was_streamed_since_the_last_checkpoint(
    programs: Nursery, kept_by: DaemonProcess, colour: str, client: str
) -> None:
    """Killed in the middle of an answer: the state is the last checkpoint, and walld has the words
    since. Another process goes on from there.
    """
    thread = f"killed {colour} {client}"
    spec = {"thread": thread, "colour": colour, "client": client}
    frames = answer("chat", "text")
    place = [at for at, frame in enumerate(frames, 1) if frame.said][2]
    so_far = told(frames[:place])
    model = f"text:frames:hold{place}"
    trial = programs.run_until(so_far, **spec, what="run", model=model)
    trial.kill()

    look = programs.run(**spec, what="look", model="text").done()
    values, following = look.words("state")[0]
    assert values == {"question": "a log", "plan": "a plan for a log"}
    assert following == ["speak"]
    lost = kept_by.reader.recover(thread)
    assert lost is not None
    assert (lost.text, lost.status) == (so_far["text"], "crashed")

    on = programs.run(**spec, what="resume", model="text").done()
    assert on.raised is None, on.lines
    assert on.words("node") == [["speak"]]  # what was checkpointed is not run again
    (final,) = on.words("values")[0]
    assert final == {**values, "answer": told(frames)["text"]}


@pytest.mark.parametrize("scenario", ["text", "tool"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_killed_behind_each_frame(
    programs: Nursery, kept_by: DaemonProcess, colour: str, scenario: str
) -> None:
    """What the node had got of its model is what walld has, whatever the checkpoint says."""
    frames = answer("chat", scenario)
    for place in [at for at, frame in enumerate(frames, 1) if frame.said]:
        thread = f"each {colour} {scenario} {place}"
        expected = told(frames[:place])
        model = f"{scenario}:frames:hold{place}"
        trial = programs.run_until(
            expected, thread=thread, colour=colour, client="sync", what="run", model=model
        )
        trial.kill()
        lost = kept_by.reader.recover(thread)
        assert lost is not None
        assert kept(kept_by.orphan(lost.stream_id)) == trial.told == joined(expected)


def test_the_example(kept_by: DaemonProcess, replay: Replay) -> None:
    check("langgraph_checkpoints", "chat", kept_by, replay)


# --- graphs --------------------------------------------------------------------------------------


class Total(TypedDict):
    items: Annotated[list[str], add]


def counting(saver: Any, *, asks: bool = False) -> Any:
    """A graph of two nodes, the second of which may ask a human."""

    def first(state: Total) -> dict[str, Any]:
        return {"items": ["first"]}

    def second(state: Total) -> dict[str, Any]:
        return {"items": [types.interrupt("may I?") if asks else "second"]}

    builder = graphs.StateGraph(Total)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(graphs.START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver)


def at(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def test_an_interrupt_is_answered_by_another_saver(walld: walld_client.Client) -> None:
    """As another process would: nothing is remembered but what is in the log."""
    counting(WalldSaver(walld), asks=True).invoke({"items": []}, at("asked"))
    other = counting(WalldSaver(walld), asks=True)
    assert other.get_state(at("asked")).next == ("second",)
    done = other.invoke(types.Command(resume="yes"), at("asked"))
    assert done["items"] == ["first", "yes"]


def test_going_back_and_on_from_there(walld: walld_client.Client) -> None:
    """Two lines of history whose channel versions are the same numbers keep their own values."""
    saver = WalldSaver(walld)
    graph = counting(saver)
    graph.invoke({"items": ["a"]}, at("fork"))
    history = list(graph.get_state_history(at("fork")))
    early = next(one for one in history if one.next == ("first",))
    graph.invoke(None, graph.update_state(early.config, {"items": ["b"]}))
    newest = graph.get_state(at("fork"))
    assert newest.values["items"] == ["a", "b", "first", "second"]
    again = [graph.get_state(one.config).values for one in history]
    assert again == [one.values for one in history]
    assert next(iter(counting(WalldSaver(walld)).get_state_history(at("fork")))) == newest


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability(walld: walld_client.Client, durability: Any) -> None:
    graph = counting(WalldSaver(walld))
    thread = f"durability {durability}"
    graph.invoke({"items": ["a"]}, at(thread), durability=durability)
    assert graph.get_state(at(thread)).values["items"] == ["a", "first", "second"]


def test_what_did_not_change_is_stored_once(walld: walld_client.Client) -> None:
    """A hundred checkpoints of a state with 20 KB in it take 20 KB for it, not 2 MB."""
    saver = WalldSaver(walld)
    head: Any = at("growth", checkpoint_ns="")
    for step in range(100):
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"long": "x" * 20_000, "step": step}
        checkpoint["channel_versions"] = {"long": 1, "step": step + 1}
        new = {"step": step + 1} | ({"long": 1} if step == 0 else {})
        head = saver.put(head, checkpoint, {"source": "loop", "step": step, "parents": {}}, new)
    (session,) = walld.sessions("growth")
    assert session.bytes < 150_000
    read = WalldSaver(walld).get_tuple(at("growth"))
    assert read.checkpoint["channel_values"] == {"long": "x" * 20_000, "step": 99}


def test_values_of_any_length(walld: walld_client.Client) -> None:
    """Long ones are artifacts; many of middling length do not overflow an entry."""
    saver = WalldSaver(walld)
    values = {f"channel {n}": bytes([n]) * (20_000 + n) for n in range(40)}
    values["long"] = b"y" * 3_000_000
    checkpoint = base.empty_checkpoint() | {
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
    }
    head = saver.put(at("long", checkpoint_ns=""), checkpoint, {}, dict.fromkeys(values, 1))
    saver.put_writes(head, [("long", b"z" * 2_000_000)], "task")
    read = WalldSaver(walld).get_tuple(head)
    assert read.checkpoint["channel_values"] == values
    assert read.pending_writes == [("task", "long", b"z" * 2_000_000)]


def test_very_many_channels_and_writes(walld: walld_client.Client) -> None:
    """What is too much for an entry is still one append, all or none, and named by later ones."""
    saver = WalldSaver(walld)
    values = {f"channel {n}": f"value {n}" for n in range(3000)}
    versions = dict.fromkeys(values, 1)
    first = base.empty_checkpoint() | {"channel_values": values, "channel_versions": versions}
    head = saver.put(at("wide", checkpoint_ns=""), first, {}, versions)
    second = base.empty_checkpoint() | {
        "channel_values": values | {"channel 7": "new"},
        "channel_versions": versions | {"channel 7": 2},
    }
    head = saver.put(head, second, {}, {"channel 7": 2})
    writes = [("items", f"send {n}" * 20) for n in range(3000)]
    saver.put_writes(head, writes, "task")
    for read in (WalldSaver(walld).get_tuple(at("wide")), next(saver.list(at("wide"), limit=1))):
        assert read.checkpoint["channel_values"] == values | {"channel 7": "new"}
        assert read.pending_writes == [("task", *one) for one in writes]


def test_a_thread_that_another_process_deleted(
    walld: walld_client.Client, kept_by: DaemonProcess
) -> None:
    """Nothing of the old log is named in the new one."""
    saver = WalldSaver(walld)
    first = base.empty_checkpoint() | {
        "channel_values": {"a": "old", "b": 1},
        "channel_versions": {"a": 1, "b": 1},
    }
    head = saver.put(at("gone", checkpoint_ns=""), first, {}, {"a": 1, "b": 1})
    WalldSaver(kept_by.reader).delete_thread("gone")
    second = base.empty_checkpoint() | {
        "channel_values": {"a": "old", "b": 2},
        "channel_versions": {"a": 1, "b": 2},
    }
    saver.put(head, second, {}, {"b": 2})
    read = WalldSaver(walld).get_tuple(at("gone"))
    assert read.checkpoint["channel_values"] == {"a": "old", "b": 2}


def test_the_daemon_is_killed_between_two_steps(
    walld: walld_client.Client, kept_by: DaemonProcess
) -> None:
    """What was put is there again, and the same saver goes on."""
    saver = WalldSaver(walld)
    counting(saver, asks=True).invoke({"items": ["a"]}, at("restart"), durability="sync")
    kept_by.kill()
    kept_by.start()
    graph = counting(saver, asks=True)
    assert graph.get_state(at("restart")).next == ("second",)
    done = graph.invoke(types.Command(resume="yes"), at("restart"))
    assert done["items"] == ["a", "first", "yes"]


def test_many_tasks_at_once(walld: walld_client.Client) -> None:
    saver = WalldSaver(walld)
    head = saver.put(at("many", checkpoint_ns=""), base.empty_checkpoint(), {}, {})
    tasks = [
        threading.Thread(target=saver.put_writes, args=(head, [("c", n)], f"task {n:02}"))
        for n in range(20)
    ]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    writes = WalldSaver(walld).get_tuple(head).pending_writes
    assert writes == [(f"task {n:02}", "c", n) for n in range(20)]


def test_behind_dropped_checkpoints_the_newest_is_found(walld: walld_client.Client) -> None:
    saver = WalldSaver(walld)
    head: Any = at("dropped", checkpoint_ns="")
    heads = []
    for step in range(12):
        metadata = {"run_id": "kept" if step < 2 else "dropped", "step": step}
        head = saver.put(head, base.empty_checkpoint(), metadata, {})
        heads.append(head)
    saver.delete_for_runs(["dropped"])
    assert saver.get_tuple(at("dropped")).config == heads[1]
    assert saver.get_tuple(heads[2]) is None
    saver.delete_for_runs(["kept"])
    assert saver.get_tuple(at("dropped")) is None


def test_a_prune_leaves_what_delta_channels_are_rebuilt_from(walld: walld_client.Client) -> None:
    def merged(state: list[str], writes: list[list[str]]) -> list[str]:
        return [*state, *(one for write in writes for one in write)]

    items = Annotated[list, DeltaChannel(merged)]
    state = TypedDict("state", {"items": items})  # type: ignore[misc]  # noqa: UP013
    saver = WalldSaver(walld)
    builder = graphs.StateGraph(state)
    builder.add_node("one", lambda _: {"items": ["one"]})
    builder.add_node("two", lambda _: {"items": ["two"]})
    builder.add_edge(graphs.START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"items": ["zero"]}, at("delta"))
    assert graph.get_state(at("delta")).values["items"] == ["zero", "one", "two"]
    before = list(saver.list(at("delta")))
    assert all("items" not in one.checkpoint["channel_values"] for one in before)
    saver.prune(["delta"])
    assert graph.get_state(at("delta")).values["items"] == ["zero", "one", "two"]
    # Without deltas one is left; here the line back to the value they begin with.
    assert len(list(saver.list(at("delta")))) == len(before) > 1
    saver.prune(["delta"], strategy="delete")
    assert walld.sessions("delta") == []


# --- what it refuses -----------------------------------------------------------------------------


def test_the_other_colour(kept_by: DaemonProcess) -> None:
    saver = WalldSaver(aio.connect(kept_by.socket_path))
    with pytest.raises(TypeError, match="this WalldSaver has an asyncio client"):
        counting(saver).invoke({"items": []}, at("colour"))


def test_no_daemon_is_no_checkpoint(tmp_path: Path) -> None:
    """A saver that returned would lie."""
    nobody = walld_client.connect(tmp_path / "nobody", timeout=0.1)
    with pytest.raises(walld_client.Unavailable):
        counting(WalldSaver(nobody)).invoke({"items": []}, at("absent"))
    nobody.close(0.0)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALLD_ENABLED", "0")
    with pytest.raises(ValueError, match="switched off"):
        WalldSaver(walld_client.connect())


def test_redact_does_not_break_state(kept_by: DaemonProcess) -> None:
    careful = walld_client.connect(kept_by.socket_path, redact=lambda text: "x" * len(text))
    graph = counting(WalldSaver(careful))
    graph.invoke({"items": ["a"]}, at("redacted"))
    assert graph.get_state(at("redacted")).values["items"] == ["a", "first", "second"]
    careful.close()


def test_threads_of_two_programs(walld: walld_client.Client) -> None:
    one, other = WalldSaver(walld, prefix="one:"), WalldSaver(walld, prefix="other:")
    counting(one).invoke({"items": ["a"]}, at("1"))
    assert other.get_tuple(at("1")) is None
    assert {found.config["configurable"]["thread_id"] for found in one.list(None)} == {"1"}
    assert list(other.list(None)) == []
