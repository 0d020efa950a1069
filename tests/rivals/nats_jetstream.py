"""NATS JetStream: a publish per event into a stream in files, acknowledged by the server.

Owns: a nats-server of PyPI, or Debian's, as shipped: one server, file storage, a sync every two
minutes; and with `sync_interval: always`, which versions before 2.10 do not know. The id of a
message makes what is sent twice one message.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .notes import Notes
from .store import Found, RefusedError, Server, Writer, free_port

__all__ = ["NatsJetstream", "why_not", "why_not_always"]

_STREAM = "events"
_SECONDS = 5.0


def _program() -> str | None:
    """Beside this Python, where a package of PyPI brings it, or in PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


def why_not() -> str | None:
    """Why it cannot take part here; None where it can."""
    if _program() is None:
        return "needs nats-server (the extra `rivals`, or Debian: apt-get install nats-server)"
    try:
        import nats  # noqa: F401
    except ImportError:
        return "needs the Python package nats-py (the extra `rivals`)"
    return None


def why_not_always() -> str | None:
    """Why not with `sync_interval: always`."""
    program, reason = _program(), why_not()
    if reason is not None or program is None:
        return reason
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < (2, 10):
        return f"needs nats-server 2.10, this is {said.strip()}"
    return None


class _Publisher:
    """Its loop runs only while it publishes."""

    def __init__(self, url: str, stream: str, notes: Notes) -> None:
        self._url = url
        self._stream = stream
        self._notes = notes
        self._loop = asyncio.new_event_loop()
        self._client: Any = None

    def append(self, seq: int, text: str) -> None:
        import nats.errors

        try:
            self._loop.run_until_complete(self._publish(seq, text))
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise OSError(str(error)) from None
        self._notes.ack(seq)

    async def _publish(self, seq: int, text: str) -> None:
        if self._client is None or not self._client.is_connected:
            self._client = await _connect(self._url)
        await self._client.jetstream().publish(
            f"events.{self._stream}",
            text.encode(),
            timeout=1.0,
            headers={"Nats-Msg-Id": f"{self._stream}.{seq}"},
        )

    def finish(self) -> None:
        pass


async def _quiet(_error: Exception) -> None:
    """What a call raises is dealt with there."""


async def _connect(url: str) -> Any:
    import nats

    return await nats.connect(
        url, allow_reconnect=False, connect_timeout=2, error_cb=_quiet, max_reconnect_attempts=0
    )


class NatsJetstream:
    """See the top. setting: "as shipped" or "always"."""

    name = "NATS JetStream"
    acks = "ack of the server"
    has_server = True

    def __init__(self, home: Path, folder: Path, setting: str) -> None:
        self.setting = setting
        self._config = home / "nats.conf"
        self._folder = folder / "nats"
        self._port = free_port()
        self._server = Server(home / "nats.log")

    @property
    def _url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1) as peer:
                if not peer.recv(4):
                    return False
        except OSError:
            return False
        return "Server is ready" in self._server.said()

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        own = {"store_dir": str(self._folder)}
        own |= {"sync_interval": "always"} if self.setting == "always" else {}
        self._config.write_text(f"jetstream {json.dumps(own)}\n")
        program = _program()
        assert program is not None
        command = [program, "-c", str(self._config), "-a", "127.0.0.1", "-p", str(self._port)]
        self._server.start(command, self._answers)
        self._ask(self._make)

    async def _make(self, jetstream: Any) -> None:
        """The stream, where there is none."""
        from nats.js.errors import NotFoundError

        try:
            await jetstream.stream_info(_STREAM)
        except NotFoundError:
            await jetstream.add_stream(name=_STREAM, subjects=["events.*"], storage="file")

    def _ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        import nats.errors

        async def run() -> Any:
            client = await _connect(self._url)
            try:
                return await call(client.jetstream(timeout=_SECONDS))
            finally:
                await client.close()

        try:
            return asyncio.run(run())
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise RefusedError(f"{type(error).__name__}: {error}") from None

    def writer(self, stream: str, notes: Notes) -> Writer:
        return _Publisher(self._url, stream, notes)

    def kill(self) -> None:
        self._server.kill()

    def stop(self) -> None:
        self._server.stop()

    def pid(self) -> int | None:
        return self._server.pid()

    def read(self) -> Found:
        if self.pid() is None:
            self.start()
        found = Found(records=self._ask(self._all))
        found.said = [
            line for line in self._server.said().splitlines() if "[WRN]" in line or "[ERR]" in line
        ]
        return found

    async def _all(self, jetstream: Any) -> list[str]:
        from nats.js.errors import NotFoundError

        state = (await jetstream.stream_info(_STREAM)).state
        records = []
        for seq in range(max(1, state.first_seq), state.last_seq + 1):
            try:
                message = await jetstream.get_msg(_STREAM, seq)
            except NotFoundError:
                continue
            records.append((message.data or b"").decode(errors="replace"))
        return records

    def repair(self) -> bool:
        return False

    def files(self) -> list[Path]:
        return sorted(self._folder.rglob("*.blk"))
