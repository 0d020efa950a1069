"""A client with a request of a tag that no build knows: `fake_verb.py SOCKET TAG COLOUR`.

Prints what it raises, what an unknown view raises, and what is answered behind both. It reaches for
the client's requests because no public call sends what does not exist yet.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from typing import Any

import msgspec
import walld_client
from walld_client import aio

RISK = {"side_effect": "external-write", "resume_policy": "never-rerun"}
GRANTS: dict[str, Any] = {
    "grant until": {"expires_at": 1.0},
    "grant of": {"scope": {"tool": "mail"}},
}


def told(error: walld_client.Refused) -> list[str]:
    return [type(error).__name__, getattr(error, "verb", ""), getattr(error, "version", "")]


def fake(tag: int) -> Any:
    return msgspec.defstruct("Fake", [("id", int)], tag=tag, array_like=True)


def blocking(path: str, tag: int) -> dict[str, Any]:
    client, found = walld_client.connect(path, timeout=30), dict[str, Any]()
    client.session("s").message("user", "hello")
    try:
        client._query.ask(fake(tag))
    except walld_client.Refused as error:
        found |= {"fake": told(error), "text": str(error)}
    try:
        client.session("s").project("horoscope")
    except walld_client.Refused as error:
        found["view"] = told(error)
    found["policy"] = None
    if "policy" in inspect.signature(walld_client.Session.resume_check).parameters:
        try:  # 0.1.0 has no such argument
            client.session("s").resume_check(policy={"rm": "deny"})
        except walld_client.Refused as error:
            found["policy"] = told(error)
        session = client.session("s")
        for name, ask in (
            ("settle", lambda: session.settle("c", "ran")),
            ("resume", session.resume),
            ("page", lambda: session.messages(last=1)),
        ):
            try:
                ask()
            except walld_client.Refused as error:
                found[name] = told(error)
        session = client.session(f"grants of {os.getpid()}")
        turn = session.submit("go")
        turn.intent("mail", {}, call_id="c", **RISK)
        turn.approval("c", "granted")
        turn.approval("c", "denied", by="anna", scope={"tool": "mail"}, expires_at=1.0)
        for name, given in GRANTS.items():
            try:
                turn.approval("c", "granted", **given)
                found[name] = None
            except walld_client.Refused as error:
                found[name] = told(error)
        found["approvals"] = len(session.find("tool_approval"))
    found["after"] = client.recover("nothing")
    client.close()
    return found


async def asynchronous(path: str, tag: int) -> dict[str, Any]:
    client, found = aio.connect(path, timeout=30), dict[str, Any]()
    await client.session("s").message("user", "hello")
    try:
        await client._query.ask(fake(tag))
    except walld_client.Refused as error:
        found |= {"fake": told(error), "text": str(error)}
    try:
        await client.session("s").project("horoscope")
    except walld_client.Refused as error:
        found["view"] = told(error)
    found["policy"] = None
    try:
        await client.session("s").resume_check(policy={"rm": "deny"})
    except walld_client.Refused as error:
        found["policy"] = told(error)
    session = client.session("s")
    for name, ask in (
        ("settle", lambda: session.settle("c", "ran")),
        ("resume", session.resume),
        ("page", lambda: session.messages(last=1)),
    ):
        try:
            await ask()
        except walld_client.Refused as error:
            found[name] = told(error)
    session = client.session(f"grants of {os.getpid()}")
    turn = await session.submit("go")
    await turn.intent("mail", {}, call_id="c", **RISK)
    await turn.approval("c", "granted")
    await turn.approval("c", "denied", by="anna", scope={"tool": "mail"}, expires_at=1.0)
    for name, given in GRANTS.items():
        try:
            await turn.approval("c", "granted", **given)
            found[name] = None
        except walld_client.Refused as error:
            found[name] = told(error)
    found["approvals"] = len(await session.find("tool_approval"))
    found["after"] = await client.recover("nothing")
    await client.close()
    return found


def main() -> None:
    path, tag, colour = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    found = asyncio.run(asynchronous(path, tag)) if colour == "aio" else blocking(path, tag)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
