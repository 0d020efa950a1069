"""WALLD_ENABLED=0: every call is there, and touches nothing."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import walld_client
import walld_client.aio
from walld_client import aio_null, null
from walld_client.client import is_enabled
from walld_client.reply.reply import ReplyBase


@pytest.fixture(autouse=True)
def _off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALLD_ENABLED", "0")


def test_every_call_is_empty(tmp_path: Path) -> None:
    threads = threading.active_count()
    client = walld_client.connect(tmp_path / "s", data=tmp_path)
    with client.reply("S", model="m") as reply:
        calls = [
            reply.token("x", n=1),
            reply.reasoning("x"),
            reply.tool("t", {}),
            reply.tool_arguments("x", call_id="c"),
            reply.tool_result(1),
            reply.step(),
            reply.event("k", {}),
            reply.model_call(model="m"),
            reply.retry("r"),
            reply.move("S2"),
            reply.finish("stop"),
            reply.end(),
            reply.cancel("c"),
            reply.error("e"),
            reply.release(),
        ]
        assert calls == [0] * 15
        assert reply.drain(0.0, "synced")
        assert (reply.sent_seq, reply.durable_seq, reply.session_id) == (0, 0, "S2")
    assert len(client.reply("S").stream_id) == 32
    assert client.reply("S", stream_id="mine").stream_id == "mine"
    assert client.recover("S") is None
    assert client.recover_all() == client.orphans() == []
    assert client.has_partial("S") is False
    assert not client.resolve("r")
    assert not client.release("r")
    session = client.session("S")
    entry = session.message("user", "hi")
    assert session.events() == session.events(branch=entry.id) == []
    assert "switched off" in client.check()
    assert not client.stats().connected
    assert client.close()
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []


def test_awaited_answers_are_empty_too() -> None:
    async def main() -> None:
        client = walld_client.aio.connect("/nowhere")
        async with client.reply("S") as reply:
            assert reply.token("x") == 0
            assert await reply.drain()
        assert await client.recover("S") is None
        assert await client.recover_all() == await client.orphans() == []
        assert await client.has_partial("S") is False
        assert not await client.resolve("r")
        assert not client.release("r")
        assert "switched off" in client.check()
        assert not client.stats().connected
        assert await client.close()

    asyncio.run(main())


def test_what_is_no_present_is_said_in_both_colours() -> None:
    for name in ("audit", "repair_plan"):
        with pytest.raises(TypeError, match="present must be ids or a callable"):
            getattr(walld_client.connect(), name)("S", present="t1")
        with pytest.raises(TypeError, match="present must be ids or a callable"):
            asyncio.run(getattr(walld_client.aio.connect(), name)("S", present="t1"))


def test_an_exception_leaves_the_block_as_ever() -> None:
    with pytest.raises(KeyError), walld_client.connect().reply("S"):
        raise KeyError


def public(kind: type) -> dict[str, Any]:
    names = [n for n in dir(kind) if not n.startswith("_") or n in ("__enter__", "__exit__")]
    return {name: inspect.getattr_static(kind, name) for name in names}


@pytest.mark.parametrize(
    ("real", "off"),
    [
        (ReplyBase, null.NullMixin),
        (walld_client.Reply, null.NullReply),
        (walld_client.aio.Reply, aio_null.AsyncNullReply),
        (walld_client.Client, null.NullClient),
        (walld_client.aio.Client, aio_null.AsyncNullClient),
    ],
)
def test_no_call_reaches_the_real_one(real: type, off: type) -> None:
    inherited = [
        name
        for name, what in public(off).items()
        if what is public(real).get(name) and name not in ("__aenter__",)
    ]
    assert inherited == []


@pytest.mark.parametrize(
    ("value", "enabled"), [("0", False), ("false", False), ("OFF", False), ("1", True), ("", True)]
)
def test_the_switch(monkeypatch: pytest.MonkeyPatch, value: str, enabled: bool) -> None:
    monkeypatch.setenv("WALLD_ENABLED", value)
    assert is_enabled() is enabled


def test_a_process_that_is_switched_off_opens_nothing(tmp_path: Path) -> None:
    script = (
        "import os, walld_client\n"
        "before = sorted(os.listdir('/proc/self/fd'))\n"
        "client = walld_client.connect()\n"
        "with client.reply('S') as reply:\n"
        "    reply.token('x'); reply.end()\n"
        "client.recover('S')\n"
        "assert sorted(os.listdir('/proc/self/fd')) == before\n"
    )
    env = {"PYTHONPATH": ":".join(sys.path), "WALLD_ENABLED": "0", "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=30)
    assert list(tmp_path.iterdir()) == []
