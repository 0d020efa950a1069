"""Pydantic AI's conversation store on sessions, beside its own in memory, on a real daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import walld_client
from adapters.trial import wants
from daemon_process import DaemonProcess
from walld_client import aio

wants("pydantic-ai-slim")

import pydantic_ai.conversation_store as vendor  # noqa: E402
from pydantic_ai import Agent, Conversation, ModelRequest, UserPromptPart  # noqa: E402
from pydantic_ai.models.test import TestModel  # noqa: E402
from walld_client.adapters.pydantic_ai_conversations import (  # noqa: E402
    WalldConversationStore,
)

AGENT = Agent(TestModel(), tools=[])
each_client = pytest.mark.parametrize("client", ["sync", "aio"])


@asynccontextmanager
async def opened(daemon: DaemonProcess, client: str, prefix: str) -> AsyncIterator[Any]:
    """A store of a client of its own: nothing is remembered from another."""
    if client == "aio":
        walld = aio.connect(daemon.socket_path)
        try:
            yield WalldConversationStore(walld, prefix=prefix)
        finally:
            await walld.close()
    else:
        blocking = walld_client.connect(daemon.socket_path)
        try:
            yield WalldConversationStore(blocking, prefix=prefix)
        finally:
            blocking.close()


async def say(store: Any, conversation_id: str, text: str) -> None:
    """One turn, as the vendor's page has it."""
    conversation = await store.load(conversation_id)
    conversation = conversation or Conversation(conversation_id=conversation_id)
    await store.save(await AGENT.run(text, conversation=conversation))


def texts(conversation: Any) -> Any:
    """What was asked and answered, without times and ids."""
    if conversation is None:
        return None
    return [[part.content for part in one.parts] for one in conversation.messages]


def asked(count: int, of: str = "x") -> list[Any]:
    return [ModelRequest(parts=[UserPromptPart(f"{n} {of}")]) for n in range(count)]


async def script(step: Callable[[Callable[[Any], Awaitable[Any]]], Awaitable[Any]]) -> list[Any]:
    """Everything the interface has, each step on a store; returns what each said."""
    told: list[Any] = []

    async def tell(what: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            found = await step(what)
        except (vendor.ConversationConflict, LookupError, vendor.UserError) as error:
            found = type(error).__name__
        told.append(texts(found) if isinstance(found, Conversation) else found)
        return found

    for text in ("one", "two", "three"):
        await tell(lambda store, text=text: say(store, "a", text))
        await tell(lambda store: store.load("a"))
    await tell(lambda store: store.load("a", limit=3))
    await tell(lambda store: store.load("never"))
    loaded = await tell(lambda store: store.load("a"))
    old = loaded.revision
    branched = await tell(lambda store: store.branch("a", at=2, expected_revision=old))
    await tell(lambda store: store.branch("a", at=1, expected_revision=old))
    branched.messages += asked(2)
    await tell(lambda store: _count(store.save(branched)))
    await tell(lambda store: store.load("a"))
    await tell(lambda store: store.load("a", limit=3))  # over the branch that was left
    (left,) = (await step(lambda store: store.read_record("a"))).branches
    await tell(lambda store: store.fork("a", at=3, new_conversation_id="b", scope="mine"))
    await tell(lambda store: say(store, "b", "four"))
    await tell(lambda store: store.load("b"))
    await tell(lambda store: store.load("b", scope="another's"))
    await tell(lambda store: _ids(store.list_conversations()))
    await tell(lambda store: _ids(store.list_conversations(scope="mine")))
    stale = await step(lambda store: store.load("b"))
    await tell(lambda store: say(store, "b", "five"))
    stale.messages += asked(1)
    await tell(lambda store: store.save(stale))
    now = (await step(lambda store: store.load("a"))).revision
    back = store_branch(left, now)
    await tell(back)
    await tell(lambda store: store.delete("a"))
    await tell(lambda store: store.load("a"))
    await tell(lambda store: store.load("b"))
    await tell(lambda store: _ids(store.list_conversations()))
    await tell(lambda store: say(store, "a", "anew"))
    await tell(lambda store: store.load("a"))
    return told


def store_branch(left: str, revision: str) -> Callable[[Any], Awaitable[Any]]:
    return lambda store: store.branch("a", from_entry=left, expected_revision=revision)


async def _count(saving: Awaitable[list[Any]]) -> int:
    return len(await saving)


async def _ids(listing: Awaitable[list[Any]]) -> list[str]:
    return [one.conversation_id for one in await listing]


@each_client
def test_it_says_what_the_vendors_own_store_says(kept_by: DaemonProcess, client: str) -> None:
    """Each step on a new store, as if each were another process."""
    memory = vendor.InMemoryConversationStore()

    async def remembered(what: Callable[[Any], Awaitable[Any]]) -> Any:
        return await what(memory)

    async def kept(what: Callable[[Any], Awaitable[Any]]) -> Any:
        async with opened(kept_by, client, f"script {client}:") as store:
            return await what(store)

    expected = asyncio.run(script(remembered))
    assert expected.count("ConversationConflict") == 2
    assert asyncio.run(script(kept)) == expected


@each_client
def test_of_writers_at_once_one_is_heard(kept_by: DaemonProcess, client: str) -> None:
    """Whatever else is appended to the session meanwhile."""

    async def main() -> None:
        async with opened(kept_by, client, f"race {client}:") as store:
            await say(store, "r", "first")
            session = kept_by.reader.session(store.session_id("r"))
            copies = [await store.load("r") for _ in range(8)]
            for at, one in enumerate(copies):
                one.messages += asked(1, f"of writer {at}")
                session.append("note", {"at": at})
            saved = await asyncio.gather(*map(store.save, copies), return_exceptions=True)
            conflicts = [one for one in saved if isinstance(one, vendor.ConversationConflict)]
            assert len(conflicts) == 7
            (heard,) = [at for at, one in enumerate(saved) if isinstance(one, list)]
            assert texts(await store.load("r")) == texts(copies[heard])

    asyncio.run(main())


def test_long_ones(kept_by: DaemonProcess) -> None:
    """1,300 messages in one save, and one of 2 MB."""

    async def main() -> None:
        async with opened(kept_by, "aio", "long:") as store:
            messages = [*asked(1300, "y" * 3000), *asked(1, "z" * 2_000_000)]
            await store.save(Conversation(conversation_id="l", messages=messages))
        async with opened(kept_by, "aio", "long:") as store:
            assert (await store.load("l")).messages == messages
            assert (await store.load("l", limit=2)).messages == messages[-2:]

    asyncio.run(main())


def test_a_fork_outlives_what_it_was_made_from(kept_by: DaemonProcess) -> None:
    async def main() -> None:
        async with opened(kept_by, "aio", "fork:") as store:
            await say(store, "source", "hello")
            fork = await store.fork("source", new_conversation_id="copy")
            assert kept_by.reader.delete(store.session_id("source"))
            assert await store.load("source") is None
            assert texts(await store.load("copy")) == texts(fork)
            with pytest.raises(KeyError):
                await store.read_entry("no such entry")

    asyncio.run(main())


async def _saved_metadata(daemon: DaemonProcess, metadata: dict[str, Any]) -> Any:
    message = ModelRequest(parts=[UserPromptPart("q")], metadata=metadata)
    async with opened(daemon, "sync", "bytes-") as store:
        conversation = Conversation(conversation_id="c", messages=[message])
        await store.save(await AGENT.run("more", conversation=conversation))
        return (await store.load("c")).messages[0].metadata


def test_metadata_that_holds_bytes(kept_by: DaemonProcess) -> None:
    """They come back as Pydantic AI's own adapter writes them: as base64."""
    assert asyncio.run(_saved_metadata(kept_by, {"k": b"\xff"})) == {"k": "_w=="}
