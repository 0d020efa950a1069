"""The same as offer.c in Python, for a machine without a C compiler.

Owns: the same arguments, the same words on stdin and stdout. Refuses: the same pace: a send costs
two to three times as much here, so the caller asks for longer bursts.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from contextlib import suppress

from walld_client.encoding import event_frames


class _Offer:
    def __init__(self, path: str, conns: int, per: int, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        self.streams = conns * per
        self.sent = [0] * self.streams
        self.owed = [0] * self.streams
        self.full_until = [0.0] * conns
        self.prefixes = [
            event_frames.text_prefix(event_frames.TOKEN, s // conns + 1)
            for s in range(self.streams)
        ]
        self.sockets: list[socket.socket] = []
        for _ in range(conns):
            (length,) = struct.unpack("=I", sys.stdin.buffer.read(4))
            peer = socket.socket(socket.AF_UNIX)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            peer.connect(path)
            peer.sendall(sys.stdin.buffer.read(length))
            peer.setblocking(False)
            self.sockets.append(peer)

    def speak(self, s: int) -> bool:
        first = self.sent[s] + 1
        texts = [
            event_frames.plain_text(self.prefixes[s], seq, b"%04x " % (seq & 0xFFFF))
            for seq in range(first, first + self.burst)
        ]
        frame = b"".join(texts)
        try:
            taken = self.sockets[s % len(self.sockets)].send(frame)
        except BlockingIOError:
            return False
        assert taken == len(frame), "a small frame is taken whole or not at all"
        self.sent[s] += self.burst
        return True

    def hear(self, peer: socket.socket) -> None:
        with suppress(BlockingIOError):
            peer.recv(65536)

    def run(self, seconds: float) -> dict[str, float]:
        per_second = self.rate / self.burst * self.streams
        begun = time.monotonic()
        due = offered = taken = eagain = listened = 0
        late, before = 0.0, time.process_time()
        while (at := time.monotonic()) < begun + seconds:
            until = int((at - begun) * per_second)
            if until == due:
                time.sleep(0.001)
                continue
            late = max(late, at - begun - (due + 1) / per_second)
            for event in range(due, min(until, due + 1024)):
                s = event % self.streams
                offered += 1
                self.owed[s] += 1
                if self.full_until[s % len(self.sockets)] > at:
                    continue
                while self.owed[s] and self.speak(s):
                    self.owed[s] -= 1
                    taken += 1
                if self.owed[s]:
                    eagain += 1
                    self.full_until[s % len(self.sockets)] = at + 0.005
            due = min(until, due + 1024)
            while listened < int((at - begun) * len(self.sockets)):
                self.hear(self.sockets[listened % len(self.sockets)])
                listened += 1
        at = time.monotonic()
        for s in range(self.streams):
            while self.owed[s] and time.monotonic() < at + 10:
                if self.speak(s):
                    self.owed[s] -= 1
                    taken += 1
                else:
                    time.sleep(0.001)
        return {
            "seconds": at - begun,
            "due": seconds * self.rate * self.streams,
            "offered": offered * self.burst,
            "taken": taken * self.burst,
            "eagain": eagain,
            "late_seconds": late,
            "cpu_seconds": time.process_time() - before,
        }

    def end(self) -> None:
        for peer in self.sockets:
            peer.setblocking(True)
        for s, seq in enumerate(self.sent):
            number = s // len(self.sockets) + 1
            end = b"\x94\x0f" + struct.pack(">BIBIB", 0xCE, number, 0xCE, seq + 1, 0xC3)
            release = b"\x93\x10" + struct.pack(">BIBI", 0xCE, number, 0xCE, seq + 2)
            both = b"".join(struct.pack(">I", len(body)) + body for body in (end, release))
            self.sockets[s % len(self.sockets)].sendall(both)


def _say(words: dict[str, float]) -> None:
    print(json.dumps(words), flush=True)


def main(path: str, conns: str, per: str, rate: str, burst: str) -> None:
    """Until stdin ends."""
    offer = _Offer(path, int(conns), int(per), float(rate), int(burst))
    _say({})
    while line := sys.stdin.buffer.readline().split():
        if line[0] == b"run":
            _say(offer.run(float(line[1])))
        elif line[0] == b"sent":
            _say({"seq": offer.sent[int(line[1])]})
        elif line[0] == b"end":
            offer.end()
            _say({})


if __name__ == "__main__":
    main(*sys.argv[1:])
