"""Agents that speak at a pace, in a process of their own.

Owns: building `offer.c` where there is a compiler (else `offer.py` does the work, more slowly) and
driving it; whether its replies came back. Refuses: measuring.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Self

import msgspec
from walld_client.wire import framing
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, environment
from bench.machine import pinned

__all__ = ["Offering", "compiled", "expected_text", "wrong_replies"]

SOURCE = Path(__file__).parent / "offer.c"


def compiled(folder: Path) -> Path | None:
    """The program made of offer.c, None where no compiler makes it."""
    program = folder / "offer"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    for compiler in ("cc", "gcc", "clang"):
        found = shutil.which(compiler)
        if found is None:
            continue
        command = [found, "-O2", "-o", str(program), str(SOURCE)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return program
    return None


def expected_text(last_seq: int) -> bytes:
    """What a stream has said when its last token was `last_seq`."""
    return b"".join([b"%04x " % (seq & 0xFFFF) for seq in range(1, last_seq + 1)])


def wrong_replies(daemon: Daemon, offering: Offering, checked: int) -> int:
    """How many of so many streams, drawn by lot, are not word for word what was sent."""
    chance = random.Random(2)
    wrong = 0
    with Peer(daemon.socket_path, "query") as peer:
        for _ in range(checked):
            c, k = chance.randrange(offering.conns), chance.randrange(offering.per)
            answer = peer.ask(wire.Recover(1, "all", None, f"s{c}-{k}"))
            (reply,) = msgspec.msgpack.decode(answer, type=list[wire.Recovered])
            text = b"".join([segment.text for segment in reply.segments])
            wrong += text != expected_text(offering.sent_seq(c, k)) or bool(reply.gaps)
    return wrong


class Offering:
    """`conns` connections of `per` streams, `rate` tokens a second each, once it is told to run.

    burst: tokens in one send(2). What a client does is 1; a machine may not be able to offer as
    many sends as a question needs tokens.

    Stream k of connection c is called s<c>-<k> and belongs to session c<c>.
    """

    def __init__(
        self,
        program: Path | None,
        socket_path: str,
        conns: int,
        per: int,
        rate: float,
        cores: set[int],
        burst: int = 1,
    ) -> None:
        self.conns, self.per, self.burst = conns, per, burst
        command = [str(program)] if program else [sys.executable, "-m", "bench.load.offer"]
        command += [socket_path, str(conns), str(per), str(rate), str(burst)]
        with pinned(cores):
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
            )
        assert self._process.stdin is not None
        try:
            for c in range(conns):
                opening = self._opening(c)
                self._process.stdin.write(struct.pack("=I", len(opening)) + opening)
            self._process.stdin.flush()
            self._answer()
        except BaseException:
            self.kill()
            raise

    def _opening(self, c: int) -> bytes:
        hello = wire.Hello(framing.PROTOCOL_VERSION, "agent", os.urandom(16), client="bench")
        starts = [wire.Start(k + 1, 0, f"s{c}-{k}", f"c{c}") for k in range(self.per)]
        return b"".join(map(framing.encode, [hello, *starts]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the generator ended with {self._process.wait()}")
        said: dict[str, float] = json.loads(line)
        return said

    def _tell(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(words.encode() + b"\n")
        self._process.stdin.flush()

    def begin(self, seconds: float) -> None:
        """Speak for so long; `result` waits for it."""
        self._tell(f"run {seconds}")

    def result(self) -> dict[str, float]:
        """seconds, due, offered, taken, eagain, late_seconds, cpu_seconds of what was begun."""
        return self._answer()

    def sent_seq(self, c: int, k: int) -> int:
        """Last seq that the kernel took of stream k of connection c."""
        self._tell(f"sent {k * self.conns + c}")
        return int(self._answer()["seq"])

    def end(self) -> None:
        """End and release every stream."""
        self._tell("end")
        self._answer()

    def kill(self) -> None:
        """Its streams become orphans."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
