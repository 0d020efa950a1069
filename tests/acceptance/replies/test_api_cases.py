"""The cases that an application's recovery must get right, each as the programs met it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until
from walld_client import PartialReply, Refused


def recovered(daemon: DaemonProcess, stream_id: str = "r") -> PartialReply:
    reply = daemon.reader.recover(stream_id=stream_id)
    assert reply is not None
    return reply


def killed(daemon: DaemonProcess, agent: Obedient, stream_id: str = "r") -> PartialReply:
    agent.kill()
    return daemon.orphan(stream_id)


def test_five_endings_are_five_readings(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    endings = {
        "clean": "reply.finish('stop'); reply.end()",
        "cancel": "reply.cancel('user')",
        "error": "reply.error('who are you', kind='auth'); reply.end()",
        "limit": "reply.finish('tool_limit_reached'); reply.__exit__(None, None, None)",
        "killed": "pass",
    }
    agent = make_agent(daemon)
    for name, ending in endings.items():
        agent.do(
            f"""
            reply = client.reply('s', stream_id={name!r}, auto_release=False)
            reply.token('I will look at'); {ending}
            replies = globals().setdefault('replies', []); replies.append(reply)
            """
        )
    agent.kill()
    readings = {}
    for name in endings:
        reply = daemon.orphan(name)
        assert reply.text == "I will look at"
        kind = None if reply.error is None else reply.error.kind
        readings[name] = (reply.status, reply.lost_reason, reply.finish_reason, kind, reply.partial)
    assert readings == {
        "clean": ("complete", None, "stop", None, False),
        "cancel": ("cancelled", "user", None, None, True),
        "error": ("errored", None, None, "auth", True),
        "limit": ("complete", None, "tool_limit_reached", None, False),
        "killed": ("crashed", "agent_lost", None, None, True),
    }
    assert len(set(readings.values())) == 5


def test_two_steps_are_two_messages_without_reasoning(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        reply = client.reply('s', stream_id='r')
        reply.reasoning('reason-a'); reply.token('text-b')
        reply.tool('t', {'q': 1}, call_id='c1'); reply.tool_result('found', call_id='c1')
        reply.step()
        reply.reasoning('reason-c'); reply.token('text-d')
        """
    )
    reply = killed(daemon, agent)
    first, second = reply.messages()
    assert (first["content"], first["reasoning"]) == ("text-b", "reason-a")
    assert (second["content"], second["reasoning"]) == ("text-d", "reason-c")
    assert first["tool_calls"][0]["outcome"] == "done"
    assert (first["_wal_seq"], second["_wal_seq"]) == (1, 6)
    with pytest.raises(ValueError, match="2 plain messages"):
        reply.to_message()
    for format_ in ("openai", "anthropic"):
        sent = json.dumps(reply.messages(format_))  # type: ignore[arg-type]
        assert "reason-" not in sent
        assert sent.index("text-b") < sent.index("found") < sent.index("text-d")


def test_the_same_text_before_and_after_a_tool_is_two_segments(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        reply = client.reply('s', stream_id='r')
        reply.token('Once more.'); reply.tool('t', call_id='c'); reply.tool_result(1, call_id='c')
        reply.token('Once more.')
        """
    )
    reply = killed(daemon, agent)
    assert [(one.kind, one.first_seq, one.text) for one in reply.segments] == [
        ("text", 1, "Once more."),
        ("tool", 2, ""),
        ("text", 4, "Once more."),
    ]
    assert reply.text == "Once more.Once more."


def test_an_equal_answer_of_an_earlier_turn_is_untouched(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """(stream, seq) is the only identity: equal words are not the same reply."""
    agent = make_agent(daemon)
    agent.do(
        """
        for turn in ('t1', 't2'):
            reply = client.reply('s', stream_id=f'r-{turn}', turn_id=turn, auto_release=False)
            reply.token('The same '); reply.token('answer.')
            if turn == 't1':
                reply.end()
        """
    )
    agent.kill()
    daemon.orphan("r-t2")
    store: list[dict[str, Any]] = [
        {"role": "user", "content": "ask"},
        {"role": "assistant", "content": "The same answer.", "_wal_stream": "r-t1", "_wal_seq": 1},
        {"role": "user", "content": "ask"},
    ]
    before = json.dumps(store[:3])
    latest = daemon.reader.recover("s")
    assert latest is not None
    assert (latest.stream_id, latest.turn_id, latest.text) == ("r-t2", "t2", "The same answer.")
    for _ in range(2):
        adopt(store, latest)
    assert json.dumps(store[:3]) == before
    assert [message.get("_wal_stream") for message in store] == [None, "r-t1", None, "r-t2"]
    assert daemon.reader.resolve("r-t2", latest.last_seq) is True
    assert recovered(daemon, "r-t1").text == "The same answer."


def adopt(store: list[dict[str, Any]], reply: PartialReply) -> int:
    """What an application does: append or replace by (stream, first seq). How many were added."""
    places = {(one.get("_wal_stream"), one.get("_wal_seq")): at for at, one in enumerate(store)}
    added = 0
    for message in reply.messages():
        at = places.get((message["_wal_stream"], message["_wal_seq"]))
        if at is None:
            store.append(message)
            added += 1
        elif message["_wal_last_seq"] > store[at].get("_wal_last_seq", 0):
            store[at] = message
    return added


def test_reasoning_only_and_tool_only(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        thought = client.reply('thought', stream_id='thought'); thought.reasoning('hm')
        called = client.reply('called', stream_id='called'); called.tool('rm', {'path': '/'})
        silent = client.reply('silent', stream_id='silent')
        """
    )
    agent.kill()
    for name in ("thought", "called", "silent"):
        reply = daemon.orphan(name)
        assert daemon.reader.has_partial(name) is True
        assert (reply.text, reply.status, reply.partial) == ("", "crashed", True)
        assert reply.messages("openai") == reply.messages("anthropic") == []
    (tool,) = recovered(daemon, "called").segments
    assert (tool.outcome, tool.call_id, tool.arguments_complete) == ("unknown", "called:1", True)
    assert recovered(daemon, "called").partial_reason == "tool_open"
    assert recovered(daemon, "thought").partial_reason == "answer_missing"
    assert [len(recovered(daemon, name).messages()) for name in ("thought", "silent")] == [1, 0]


def test_twenty_readings_same_bytes_no_growth(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("[reply.token(f'{number} ') for number in range(300)]; reply.drain(20, 'synced')")
    for alive in (True, False):
        if not alive:
            agent.kill()
            daemon.orphan("r")
            until(daemon.partials, "the partial")
            until(lambda: daemon.status()["wal_live_bytes"] == 0, "the segment given up")
        sizes = {path: path.stat().st_size for path in daemon.partials()}
        written = record_bytes(daemon)
        readings = {json.dumps(recovered(daemon).to_dict()) for _ in range(20)}
        assert len(readings) == 1
        assert {path: path.stat().st_size for path in daemon.partials()} == sizes
        assert record_bytes(daemon) == written
    assert daemon.recovered_json("s") == daemon.recovered_json("s")


def record_bytes(daemon: DaemonProcess) -> int:
    """Of all records ever written; a batch that only says what is synced has none."""
    status = daemon.status()
    return int(status["record_bytes_first"] + status["record_bytes_carried"])


def test_grown_since_it_was_read(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("[reply.token('x') for _ in range(7)]; reply.step(); reply.drain(20)")
    early = recovered(daemon)
    assert early.last_seq == 8
    with pytest.raises(Refused) as alive:
        daemon.reader.resolve("r", 8)
    assert (alive.value.code, alive.value.got) == ("refused", "alive")
    agent.do("[reply.token('y') for _ in range(4)]")
    later = killed(daemon, agent)
    assert later.last_seq == 12
    for _ in range(2):  # the stream in the log, then its partial
        with pytest.raises(Refused) as grown:
            daemon.reader.resolve("r", 8)
        assert (grown.value.code, grown.value.got, grown.value.limit) == ("refused", "8", "12")
        until(daemon.partials, "the partial")
    first_seqs = [message["_wal_seq"] for message in early.messages()]
    assert [message["_wal_seq"] for message in later.messages()][: len(first_seqs)] == first_seqs
    assert later.text == early.text + "yyyy"
    store = early.messages()
    assert adopt(store, later) == 1, "what was read before is replaced in place"
    assert daemon.reader.resolve("r", 12) is True
    assert daemon.reader.resolve("r", 12) is False


APP = """
import json, os, signal
def load():
    with open(path) as file:
        return json.load(file)
def save(store):
    with open(path + '.new', 'w') as file:
        json.dump(store, file)
    os.replace(path + '.new', path)
def sweep(die):
    added = 0
    for reply in client.orphans():
        store = load()
        for message in reply.messages():
            if not any(message['_wal_stream'] == one['_wal_stream'] for one in store):
                store.append(message)
                added += 1
        save(store)
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        client.resolve(reply.stream_id, reply.last_seq)
    return added
"""


def test_killed_between_save_and_release_and_between_save_and_resolve(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    store = daemon.home / "store.json"
    store.write_text("[]")
    app = f"path = {str(store)!r}\n" + APP

    saved = make_agent(daemon)
    saved.do(app)
    saved.do(
        """
        with client.reply('s', stream_id='saved') as reply:
            reply.token('Saved by the application.')
        save([{'role': 'assistant', 'content': reply.stream_id, '_wal_stream': reply.stream_id}])
        """
    )
    orphan = killed(daemon, saved, "saved")
    assert (orphan.status, orphan.partial) == ("complete", False)
    assert [reply.stream_id for reply in daemon.reader.orphans()] == ["saved"]

    sweeper = make_agent(daemon)
    sweeper.do(app)
    assert sweeper.do("sweep(False)") == 0, "its stamp says it is there already"
    assert daemon.reader.recover_all() == []

    torn = make_agent(daemon)
    torn.do("reply = client.reply('s', stream_id='torn'); reply.token('Half of')")
    killed(daemon, torn, "torn")
    dying = make_agent(daemon)
    dying.do(app)
    dying.begin("sweep(True)")
    dying.process.wait()
    assert len(json.loads(store.read_text())) == 2
    assert [reply.stream_id for reply in daemon.reader.orphans()] == ["torn"]
    daemon.restart()
    assert sweeper.do("sweep(False)") == 0, "once more, and nothing is added"
    assert daemon.reader.recover_all() == []
    assert [one["_wal_stream"] for one in json.loads(store.read_text())] == ["saved", "torn"]


def test_ended_and_unreleased_with_its_owner_alive_is_no_orphan(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent, other = make_agent(daemon), make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r', auto_release=False); reply.token('x')")
    agent.do("reply.end(); reply.drain(20)")
    orphans = "[reply.stream_id for reply in client.orphans()]"
    assert other.do(orphans) == []
    assert agent.do(orphans) == []
    assert other.do("client.recover('s').owner_alive, client.recover('s').status") == [
        True,
        "complete",
    ]
    daemon.restart()
    assert other.do(orphans) == [], "a restart orphans nobody"
    agent.do("client.release('r')")
    until(lambda: other.do("client.recover('s')") is None, "released by its owner")
    agent.do("reply = client.reply('s', stream_id='r2', auto_release=False); reply.end()")
    agent.do("reply.drain(20)")
    agent.kill()
    until(lambda: other.do(orphans) == ["r2"], "the owner is gone")


def test_cancelled_from_another_thread(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    late = agent.do(
        """
        import threading
        reply = client.reply('s', stream_id='r')
        reply.token('cancelled-text'); reply.reasoning('cancelled-reason')
        reply.tool('cancelled-tool', {'at': 1}, call_id='c')
        thread = threading.Thread(target=reply.cancel, args=('stop button',))
        thread.start(); thread.join()
        [reply.token('more') for _ in range(3)]
        reply.drain(20)
        client.stats().late
        """
    )
    assert late == 3
    reply = recovered(daemon)
    assert [one.kind for one in reply.segments] == ["text", "reasoning", "tool"]
    assert (reply.text, reply.status, reply.lost_reason) == (
        "cancelled-text",
        "cancelled",
        "stop button",
    )
    assert reply.segments[2].outcome == "unknown"
    assert daemon.holding([b"cancelled-"])
    agent.do("reply.release()")
    until(lambda: daemon.holding([b"cancelled-"]) == [], "the disk free of it")
    assert daemon.reader.recover("s") is None


def test_errors_after_and_before_tokens(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("a = client.reply('a', stream_id='a'); a.token('So far'); a.error('broke')")
    agent.do("b = client.reply('b', stream_id='b'); b.error('no key', kind='auth', detail=[401])")
    agent.do("a.drain(20)")
    after, before = recovered(daemon, "a"), recovered(daemon, "b")
    assert (after.status, after.text, len(after.messages())) == ("errored", "So far", 1)
    assert (before.status, before.text, before.messages()) == ("errored", "", [])
    assert before.to_message() is None
    assert before.messages("openai") == before.messages("anthropic") == []
    assert before.error is not None
    assert (before.error.message, before.error.kind, before.error.detail) == (
        "no key",
        "auth",
        [401],
    )


def test_what_is_sent_to_a_provider_has_no_orphan_and_no_double_role(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        client.reply('s', stream_id='none', auto_release=False).cancel()
        partial = client.reply('s', stream_id='partial'); partial.token('And then')
        call = client.reply('s', stream_id='call'); call.token('Looking.')
        call.tool('look', {'a': 1}, call_id='open'); call.step(); call.token('Still.')
        result = client.reply('s', stream_id='result'); result.token('There.')
        result.tool_result('orphan', call_id='nobody'); result.token('So.')
        mixed = client.reply('s', stream_id='mixed')
        mixed.tool('look', {}, call_id='done'); mixed.tool_result('seen', call_id='done')
        mixed.tool('half', call_id='half'); mixed.tool_arguments('{"a', call_id='half')
        mixed.step(); mixed.token('One.'); mixed.step(); mixed.token('Two.')
        """
    )
    agent.kill()
    for name in ("none", "partial", "call", "result", "mixed"):
        reply = daemon.orphan(name)
        openai = reply.messages("openai")
        calls = {call["id"] for one in openai for call in one.get("tool_calls", [])}
        results = {one["tool_call_id"] for one in openai if one["role"] == "tool"}
        assert calls == results
        turns = [one["role"] for one in openai]
        assert ("assistant", "assistant") not in pairwise(turns)
        anthropic = reply.messages("anthropic")
        roles = [one["role"] for one in anthropic]
        assert all(here != there for here, there in pairwise(roles))
        blocks = [block for one in anthropic for block in one["content"]]
        uses = {block["id"] for block in blocks if block["type"] == "tool_use"}
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        assert uses == answered
        assert "orphan" not in json.dumps([openai, anthropic])
        assert len(uses) == (1 if name == "mixed" else 0)
        assert (roles == []) is (name == "none")


def test_a_retry_starts_again_and_the_first_attempt_stays_readable(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        reply = client.reply('s', stream_id='r')
        reply.token('Hel'); reply.retry('connection reset'); reply.token('Hel'); reply.token('lo')
        reply.finish('stop')
        """
    )
    reply = killed(daemon, agent)
    assert (reply.text, reply.attempts, reply.partial) == ("Hello", 2, False)
    assert [(one.attempt, one.text) for one in reply.segments] == [(0, "Hel"), (1, "Hello")]
    assert [message["content"] for message in reply.messages()] == ["Hello"]
    assert [message["content"] for message in reply.messages("openai")] == ["Hello"]


def test_a_step_that_is_done_again_leaves_those_before_it(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do(
        """
        reply = client.reply('s', stream_id='r')
        reply.token('I look. '); reply.tool('weather', {}, call_id='c'); reply.finish('tool_calls')
        reply.tool_result('4 degrees', call_id='c'); reply.step()
        reply.token('Four de'); reply.retry('connection reset', step=True)
        reply.token('Four degrees.'); reply.finish('stop')
        """
    )
    reply = killed(daemon, agent)
    assert (reply.text, reply.attempts, reply.partial) == ("I look. Four degrees.", 2, False)
    assert [one.text for one in reply.segments if one.attempt == 0] == ["Four de"]
    told = [(one["role"], one.get("content")) for one in reply.messages("openai")]
    assert told == [
        ("assistant", "I look. "),
        ("tool", "4 degrees"),
        ("assistant", "Four degrees."),
    ]
    assert [one["content"] for one in reply.messages()] == ["I look. ", "Four degrees."]
