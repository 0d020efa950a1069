"""An agent of either build: says and does one of each kind, then waits to be killed.

    acts.py SOCKET ROUND   fills, prints "ready", then says a word for each line of its input

Uses only what 0.1.0 has: it runs with the client of whatever build is in its path.
"""

from __future__ import annotations

import sys
from typing import Any

import walld_client


def replies(client: walld_client.Client, name: str) -> None:
    """Kept, released, errored, cancelled, retried: all but the live one."""
    with client.reply(f"{name}-kept", stream_id=f"{name}-kept", marked=name) as kept:
        kept.reasoning("I think")
        kept.token("whole ")
        kept.tool("grep", {"q": "x"}, call_id="c1")
        kept.tool_result("3 hits", call_id="c1")
        kept.step()
        kept.token("answer \U0001f600")
    released = client.reply(f"{name}-released", stream_id=f"{name}-released")
    released.token("released words")
    released.end()
    errored = client.reply(f"{name}-errored", stream_id=f"{name}-errored")
    errored.token("up to here")
    errored.error("the provider went away", kind="Gone")
    cancelled = client.reply(f"{name}-cancelled", stream_id=f"{name}-cancelled")
    cancelled.token("first try")
    cancelled.retry("overloaded")
    cancelled.token("second try")
    cancelled.event("note", {"a": 1})
    cancelled.cancel("enough")
    for one in (released, errored, cancelled):
        assert one.drain(30, "synced")


def session(client: walld_client.Client, name: str) -> Any:
    """Turns, tools, approvals, branches, artifacts; a turn whose tool has started and not ended."""
    log = client.session(f"{name}-session")
    turn = log.submit("please do it", message_id=f"{name}-m1", attachments=[b"an attachment"])
    turn.worker_started()
    turn.intent(
        "write",
        {"to": "f"},
        side_effect="workspace-write",
        resume_policy="rerun-after-check",
        call_id="t1",
    )
    turn.approval("t1", "asked")
    turn.approval("t1", "granted")
    turn.tool_started("t1")
    turn.tool_finished("t1", {"ok": True})
    turn.observation("t1", "it is written")
    with turn.reply(stream_id=f"{name}-turn") as reply:
        reply.token("done as ")
        reply.token("asked")
        reply.end()
    assert reply.drain(30, "synced")
    turn.completed()
    first = log.message("user", "and then?")
    log.label(first.id, "a place")
    log.branch(first.id, "other way", summary="what was left")
    log.message("assistant", "the other way")
    log.artifact(b"bytes of " * 3000, "text/plain", name="notes")
    for number in range(60):  # more than a checkpoint waits for
        log.append("note", {"number": number, "half": "\ud83d"})
    log.compact("it was done", first.id)
    log.fork(None, f"{name}-fork")
    gone = client.session(f"{name}-gone")
    gone.message("user", f"never to be seen again {name}")
    assert client.delete(f"{name}-gone")
    open_ = log.submit("one more", message_id=f"{name}-m2")
    open_.worker_started()
    open_.intent(
        "mail",
        {"to": "all"},
        side_effect="external-write",
        resume_policy="never-rerun",
        call_id="t2",
    )
    open_.approval("t2", "asked")
    open_.approval("t2", "granted")
    open_.tool_started("t2")
    denied = log.append("note", {"last": True}, synced=True)
    assert denied.is_new
    return open_


def main() -> None:
    client, name = walld_client.connect(sys.argv[1], timeout=30), sys.argv[2]
    replies(client, name)
    turn = session(client, name)
    live = client.reply(f"{name}-live", stream_id=f"{name}-live")
    live.token("alive")
    half = turn.reply(stream_id=f"{name}-half")
    half.token("half a turn's rep")
    assert live.drain(30, "synced")
    assert half.drain(30, "synced")
    print("ready", flush=True)
    for line in sys.stdin:
        live.token(f" {line.strip()}")
        said = live.drain(60, "synced")
        print("said" if said else f"not said: {client.stats()}", flush=True)


if __name__ == "__main__":
    main()
