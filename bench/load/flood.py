"""Everything at once: the generator of `bulk`, in a process of its own.

    python -m bench.load.flood SOCKET EVENTS CONNS TEXT_BYTES [STREAMS [WAITED]]

Owns: frames encoded beforehand, non-blocking sends of 64 KiB, one Drain a connection at the end.
STREAMS of a connection (1) say their tokens in turns. WAITED: they go out as a client sends what
had to wait, so many tokens looked at together; 1 (as usual): as they are said.
Says on stdout, as JSON, how long it took from the first byte to the last Drained. Refuses: what the
daemon made of it.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Iterator
from itertools import islice

from walld_client.encoding import event_frames
from walld_client.wire import messages as wire

from bench.daemon import Peer

_SLICE_BYTES = 64 * 1024


def main(
    path: str, events: str, conns: str, text_bytes: str, streams: str = "1", waited: str = "1"
) -> None:
    """One flood. The bytes are the client's: streams and seqs at their full width."""
    peers = [Peer(path, "agent") for _ in range(int(conns))]
    numbers = range(1, int(streams) + 1)
    for at, peer in enumerate(peers):
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        peer.send(*(
            wire.Start(number, 0, f"{peer.producer.hex()}-{number}", f"flood{at}")
            for number in numbers
        ))  # fmt: skip
    each = int(events) // len(peers) // len(numbers)
    text = b"abcde" * (int(text_bytes) // 5)
    prefixes = [event_frames.text_prefix(event_frames.TOKEN, number) for number in numbers]
    said = (
        event_frames.plain_text(prefix, seq, text)
        for seq in range(1, each + 1)
        for prefix in prefixes
    )
    out = memoryview(b"".join(said if waited == "1" else _folded(said, int(waited))))
    poll = select.poll()
    left = {peer.socket.fileno(): (peer.socket, 0) for peer in peers}
    for peer in peers:
        peer.drain()  # its Start is taken in
        peer.socket.setblocking(False)
        poll.register(peer.socket, select.POLLOUT)
    begun = time.perf_counter()
    while left:
        for fd, _ in poll.poll():
            sender, at = left[fd]
            try:
                at += sender.send(out[at : at + _SLICE_BYTES])
            except BlockingIOError:
                continue
            left[fd] = sender, at
            if at == len(out):
                poll.unregister(fd)
                del left[fd]
    for peer in peers:
        peer.socket.settimeout(60)
    for peer in peers:
        peer.drain()
    took = time.perf_counter() - begun
    count = each * len(numbers) * len(peers)
    print(json.dumps({"events": count, "seconds": took, "bytes": len(out) * len(peers)}))
    for peer in peers:
        for number in numbers:
            peer.send(wire.End(number, each + 1, clean=True), wire.Release(number, each + 2))
        peer.drain("synced")
        peer.socket.close()


def _folded(said: Iterator[bytes], waited: int) -> Iterator[bytes]:
    while loose := list(islice(said, waited)):
        yield from event_frames.folded(loose)


if __name__ == "__main__":
    main(*sys.argv[1:])
