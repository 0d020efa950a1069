"""walld, as it comes, in two of its classes: what it called written, and what it called synced.

Owns: an agent that sends flat out and asks every few events how far it is. Every ack is noted as
the client reads it, so also one that nobody waited for is held to.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import walld_client
from kernel.processes import RealDaemon
from walld_client.link.ack_handler import AckHandler
from walld_client.wire.messages import Ack

from .events import END
from .notes import Notes
from .store import PATIENCE_SECONDS, Found, RefusedError, Writer

__all__ = ["Sidecar"]

_ASKS_EVERY: Final = 16
_DRAIN_SECONDS: Final = 1.0


class _Agent:
    def __init__(self, socket_path: str, stream: str, notes: Notes, level: str) -> None:
        _listen_in(notes, level)
        self._notes = notes
        self._level = level
        client = walld_client.connect(socket_path)
        self._reply = client.reply("session", stream_id=stream, auto_release=False)

    def append(self, seq: int, text: str) -> None:
        assert self._reply.token(text) == seq
        if seq % _ASKS_EVERY == 0 and self._reply.drain(_DRAIN_SECONDS, self._level):
            self._notes.ack(seq)

    def finish(self) -> None:
        while not self._reply.drain(_DRAIN_SECONDS, self._level):
            pass
        self._notes.ack(self._notes.tried)


def _listen_in(notes: Notes, level: str) -> None:
    """Of this process alone: it was forked for one agent, with one stream."""
    heard = AckHandler._acked

    def acked(acks: AckHandler, ack: Ack) -> None:
        for _, written, synced in ack.streams:
            told = synced if level == "synced" else max(written, synced)
            notes.ack(told)
        heard(acks, ack)

    AckHandler._acked = acked  # type: ignore[method-assign, assignment]


class Sidecar:
    """See the top. level: "written" or "synced"."""

    name = "walld"
    has_server = True

    def __init__(self, home: Path, folder: Path, *, level: str) -> None:
        self.setting = f"told {level}"
        self.acks = level
        self._home = home
        self._data = folder / "data"
        self._level = level
        self._daemon: RealDaemon | None = None

    def start(self) -> None:
        self._daemon = daemon = RealDaemon(self._home, self._data)
        try:
            daemon.until_ready()
        except AssertionError as error:
            daemon.kill()
            raise RefusedError(str(error)) from None

    def writer(self, stream: str, notes: Notes) -> Writer:
        return _Agent(str(self._home / "s"), stream, notes, self._level)

    def kill(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()

    def stop(self) -> None:
        assert self._daemon is not None
        self._daemon.signal(signal.SIGTERM)
        self._daemon.process.wait(PATIENCE_SECONDS)

    def pid(self) -> int | None:
        daemon = self._daemon
        return daemon.own_pid() if daemon is not None and daemon.is_alive() else None

    def read(self) -> Found:
        if self.pid() is None:
            self.start()
        assert self._daemon is not None
        found = Found()
        for reply in self._daemon.replies():
            for piece in reply.segments:
                if piece.kind == "gap":
                    found.said.append(f"{reply.stream_id}: {piece}")
                    continue
                texts = [text + END for text in piece.text.split(END)[:-1]]
                if len(texts) != piece.last_seq - piece.first_seq + 1:
                    texts = [piece.text]  # not as many events as it says: nobody said that
                found.records += texts
        started = self._daemon.status()["start"]
        found.said += [f"{name} {started[name]}" for name in ("torn", "corrupt") if started[name]]
        return found

    def repair(self) -> bool:
        return False

    def files(self) -> list[Path]:
        return sorted((self._data / "wal").glob("*.wal"))
