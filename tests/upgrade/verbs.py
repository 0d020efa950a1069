"""Each public verb once, where `acts.py` was: prints for each whether it did as it says.

Uses only what 0.1.0 has: it runs with the client of whatever build is in its path.
"""

from __future__ import annotations

import asyncio
import json
import sys

import walld_client
from walld_client import aio


def replies(client: walld_client.Client, name: str) -> dict[str, object]:
    told: dict[str, object] = {}
    live = client.recover(stream_id=f"{name}-live")
    assert live is not None
    told["orphan"] = live.text == "alive one two three" and not live.owner_alive
    try:
        client.resolve(live.stream_id, live.last_seq - 1)
    except walld_client.Refused as error:
        told["resolve grown"] = error.code == "refused"
    told["resolve"] = client.resolve(live.stream_id, live.last_seq)
    told["resolved"] = client.recover(stream_id=f"{name}-live") is None
    told["resolve twice"] = client.resolve(live.stream_id) is False
    told["resolve errored"] = client.resolve(f"{name}-errored") and client.resolve(f"{name}-kept")
    told["released is gone"] = client.recover(f"{name}-released") is None
    told["has_partial"] = client.has_partial(f"{name}-cancelled") is True
    own = client.reply("own", stream_id="own")
    own.token("mine")
    told["read your own"] = (found := client.recover("own")) is not None and found.text == "mine"
    own.end()
    told["release"] = own.drain(30, "synced") and client.recover("own") is None
    return told


def sessions(client: walld_client.Client, name: str) -> dict[str, object]:
    told: dict[str, object] = {}
    log = client.session(f"{name}-session")
    again = log.submit("please do it", message_id=f"{name}-m1")
    told["submit again"] = again.state == "completed"
    check = log.resume_check()
    told["resume_check"] = check is not None and check["status"] == "blocked"
    made = log.artifact(b"put by the other", "text/plain", name="other")
    told["artifact"] = log.read_artifact(made.sha256) == b"put by the other"
    told["find"] = bool(log.find(type="artifact"))
    try:
        log.append("note", {}, expected_seq=3)
    except walld_client.Refused as error:
        told["stale"] = error.code == "stale"
    told["undo"] = log.undo().is_new
    told["branch"] = log.branch(None, "root").is_new
    told["messages"] = log.messages() == []
    told["fork"] = bool(log.fork(None, f"{name}-fork2", whole=True).events())
    told["delete"] = client.delete(f"{name}-fork") and client.delete(f"{name}-fork2")
    told["deleted"] = client.session(f"{name}-fork").events() == []
    report = client.audit(present=[])
    told["audit"] = report.turns == 2
    told["repair_plan"] = bool(client.repair_plan(f"{name}-session", present=[]))
    told["sessions"] = [one.session_id for one in client.sessions()] == [f"{name}-session"]
    return told


async def asynchronous(path: str, name: str) -> dict[str, object]:
    client = aio.connect(path, timeout=30)
    one = await client.recover(f"{name}-cancelled")
    log = client.session(f"{name}-session")
    entry = await log.append("note", {"by": "aio"}, synced=True)
    told: dict[str, object] = {
        "aio recover": one is not None and one.text == "second try",
        "aio append": entry.is_new,
        "aio events": bool(await log.events()),
    }
    await client.close()
    return told


def main() -> None:
    path, name = sys.argv[1:]
    client = walld_client.connect(path, timeout=30)
    told = replies(client, name) | sessions(client, name)
    client.close()
    print(json.dumps(told | asyncio.run(asynchronous(path, name)), default=repr))


if __name__ == "__main__":
    main()
