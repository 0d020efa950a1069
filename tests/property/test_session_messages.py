"""Laws of conversations: what a path tells, against lists that say the same plainly."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from session_log import Log
from walld_client.recovered.provider import anthropic_messages, openai_messages

from walld.sessions.gate.fork import forked
from walld.sessions.state.events import Event
from walld.sessions.state.path import path_events, places
from walld.sessions.views.messages import edit_target, messages
from walld.sessions.views.tree import labels_of, tree

law = settings(max_examples=120)
back = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 6])
texts = st.sampled_from("abcdef")


@st.composite
def said(draw: st.DrawFn) -> dict[str, Any]:
    """A message; some of them steps of a reply."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(texts)}
    if draw(st.booleans()):
        message |= {"_wal_stream": "s", "_wal_seq": draw(st.sampled_from([1, 1, 1, 2]))}
    if draw(st.integers(0, 3)) == 3:  # may be the id of another entry
        message["_message_id"] = draw(st.sampled_from(["e2", "e3", "e5", "m-t0"]))
    return message


@st.composite
def conversations(draw: st.DrawFn) -> Log:
    """A ledger of nothing but what changes a conversation; names are of entries not far above."""
    log = Log()
    log.submit("t0", "first")
    for number in range(draw(st.integers(2, 14))):
        target = f"e{max(log.state.last_seq - draw(back), 1)}"
        kind = draw(st.integers(0, 12))
        if kind < 4:
            log.add("message", draw(said()))
        elif kind == 4:
            log.submit(f"t{number + 1}", draw(texts))
        elif kind < 7:
            name = draw(st.sampled_from([target, target, "m-t0"]))
            log.offer("message_edit", {"target": name, "message": draw(said())})
        elif kind == 7:
            seen = len(messages(log.events) or ())
            log.add("undo", {"n": draw(st.sampled_from([1, 2, max(seen, 1), seen + 1]))})
        elif kind == 8:
            name = draw(st.sampled_from([target, target, "m-t0"]))
            log.offer("compaction", {"summary": "sum", "first_kept": name})
        elif kind == 9:
            listed = draw(st.just([]) | st.lists(said(), max_size=2))
            append = {"append": True} if draw(st.booleans()) else {}
            log.add("compaction", {"replacement": listed} | append)
        elif kind == 10:
            log.add("message_edit", {"messages": draw(st.lists(said(), max_size=2))})
        elif kind == 11:
            log.add("label", {"target": target, "text": draw(st.sampled_from(["x", "y", None]))})
        else:
            log.add("leaf", {"target": target})
    return log


class Told:
    """A message of the list below: where its entry stood, what it is found by."""

    def __init__(self, place: int, names: set[object], message: dict[str, Any]) -> None:
        self.place = place
        self.names = names
        self.called = message.get("_message_id")
        self.message = message
        self.is_edited = False
        self.reply = (message.get("_wal_stream"), message.get("_wal_seq"))


class Plainly:
    """Every search is a walk over everything that was ever said."""

    def __init__(self, path: list[Event]) -> None:
        self.listed: list[Told] = []
        self.ever: list[Told] = []
        self.short: list[Told] = []
        self.hidden = 0
        for place, event in enumerate(path):
            getattr(self, event.type, lambda *_: None)(place, event.id, event.payload, path)

    def tell(self, told: Told) -> None:
        self.listed.append(told)
        self.ever.append(told)

    def message(self, place: int, id_: str, payload: dict[str, Any], _path: object) -> None:
        new = Told(place, {id_}, payload)
        before = [one for one in self.ever if one.reply == new.reply and None not in new.reply]
        if not before:
            self.tell(new)
            return
        before[-1].names.add(id_)
        if not before[-1].is_edited:
            before[-1].message = payload

    def turn_submitted(self, place: int, id_: str, payload: dict[str, Any], path: Any) -> None:
        told = {"role": "user", "content": payload["content"], "_turn": path[place].turn}
        self.tell(Told(place, {id_}, told | {"_message_id": payload["message_id"]}))

    def message_edit(self, place: int, _id: str, payload: dict[str, Any], _path: object) -> None:
        if "messages" in payload:
            for one in self.ever:
                one.names.clear()
                one.called = None
            self.listed, self.short, self.hidden = [], [], 0
            for message in payload["messages"]:
                self.tell(Told(place, set(), message))
            return
        for one in self.found(payload["target"], payload.get("message_id")):
            one.message, one.is_edited = payload["message"], True

    def found(self, name: object, called: object = None) -> list[Told]:
        by_id = [one for one in self.ever if name in one.names and called is None]
        return by_id or [one for one in self.ever if one.called == (called or name)]

    def undo(self, _place: int, _id: str, payload: dict[str, Any], _path: object) -> None:
        for _ in range(payload["n"]):
            if len(self.listed) > self.hidden:
                self.listed.pop()
                continue
            del self.short[-1:]
            if not self.short:  # nothing stands for the rest any more: that is undone with it
                self.listed, self.hidden = [], 0

    def compaction(self, place: int, id_: str, payload: dict[str, Any], path: list[Event]) -> None:
        names: set[object] = set()
        if "replacement" in payload:
            short, self.hidden = payload["replacement"], len(self.listed)
        else:
            short = [{"role": "user", "content": payload["summary"], "_compaction": id_}]
            names.add(id_)
            first = payload["first_kept"]
            stands = [at for at in range(place) if path[at].id == first]
            stands += [one.place for one in self.found(first)]
            self.hidden = sum(one.place < stands[0] for one in self.listed) if stands else None
            if self.hidden is None:
                self.hidden = len(self.listed)
        added = [Told(place, names, message) for message in short]
        for one in added:  # a copy of what a reply said: said anew, the reply is not the copy
            one.reply = (None, None)
        self.ever += added
        self.short = [*self.short, *added] if payload.get("append") else added

    def seen(self) -> list[dict[str, Any]]:
        return [one.message for one in (*self.short, *self.listed[self.hidden :])]


@law
@given(conversations())
def test_a_path_tells_what_plain_lists_tell(log: Log) -> None:
    plain = Plainly(path_events(log.events))
    assert messages(log.events) == plain.seen()
    assert messages(log.events, compacted=False) == [one.message for one in plain.listed]


@law
@given(conversations())
def test_a_label_is_no_leaf(log: Log) -> None:
    """The views stand where the daemon does, and nothing is told otherwise for a label."""
    assert tree(log.events)["leaf"] == log.state.leaf
    leaf, told = log.state.leaf, messages(log.events)
    log.add("label", {"target": "e1", "text": "z"})
    assert log.state.leaf == tree(log.events)["leaf"] == leaf
    assert messages(log.events) == told
    log.say("user", "next")
    assert log.events[-1].parent == leaf


@law
@given(conversations(), st.data())
def test_a_fork_keeps_the_labels_of_its_path(log: Log, data: st.DataObject) -> None:
    ids = [event.id for event in log.events]
    at = data.draw(st.sampled_from([None, *ids]))
    copies = forked(log.events, at)
    copied = {event.id for event in copies}
    found = places(log.events)
    if at is None and found.leaf < 0:
        assert copies == []
        return
    on_path = {event.id for event in path_events(log.events, at)}
    kept = {target: text for target, text in labels_of(log.events).items() if target in copied}
    assert labels_of(copies) == kept
    for event in log.events:
        if event.id in on_path - copied and event.type not in ("leaf", "label"):
            named = next(one for one in log.events if one.id == event.payload["target"])
            assert named.type in ("leaf", "label"), "what was appended can be copied"
    assert messages(copies) == messages(log.events, branch=at)


@law
@given(st.data())
def test_calls_that_a_provider_is_sent_are_answered(data: st.DataObject) -> None:
    """Each call once, its result right behind it: whatever was said, and in whatever order."""
    call = st.sampled_from(["c1", "c2"])
    asks = st.builds(
        lambda id_, content: {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": id_, "name": "x", "arguments": "{}"}],
        },
        call,
        texts,
    )
    answers = st.builds(lambda id_: {"role": "tool", "tool_call_id": id_, "content": "r"}, call)
    others = st.builds(lambda content: {"role": "user", "content": content}, texts)
    told = data.draw(st.lists(st.one_of(asks, answers, others), max_size=8))
    asked: Counter[str] = Counter()
    answered = 0
    for message in told:
        if message["role"] == "tool" and asked[message["tool_call_id"]]:
            answered += 1
            asked[message["tool_call_id"]] -= 1
        asked.update(one["id"] for one in message.get("tool_calls", ()))
    open_calls: list[str] = []
    for sent in openai_messages(told):
        if sent["role"] == "tool":
            answered -= 1
            assert sent["content"] == "r", "a result that nobody gave"
            assert open_calls, "a result without a call"
            assert sent["tool_call_id"] == open_calls.pop(0)
            continue
        assert not open_calls, "a call without a result"
        open_calls = [one["id"] for one in sent.get("tool_calls", ())]
    assert not open_calls
    assert answered == 0, "each call with a result, and no other"
    blocks = [block for sent in anthropic_messages(told) for block in sent["content"]]
    used = [block["id"] for block in blocks if block["type"] == "tool_use"]
    given_ids = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert sorted(used) == sorted(given_ids)
    assert len(set(used)) == len(used)


@law
@given(conversations())
def test_an_edit_is_said_to_change_something_where_it_does(log: Log) -> None:
    def told(events: list[Event]) -> object:
        return messages(events), messages(events, compacted=False)

    before = told(log.events)
    leaf = log.state.leaf
    for name in [*(event.id for event in path_events(log.events)), "m-t0"]:
        found = edit_target(log.events, name)
        assert found is not None
        new = {"role": "user", "content": "an edit"}
        payload = {**found, "target": found.get("target", name), "message": new}
        edit = Event(
            seq=log.state.last_seq + 1, id="edit", parent=leaf, type="message_edit", payload=payload
        )
        assert (told([*log.events, edit]) == before) == ("why" in found), name
