"""What is written, for what was said?

- Writes a flush: one write(2) for each 256 KiB, whatever the number of streams. Flushes of known
  size are forced one by one and the daemon's own count of writes is read after each.
- Bytes on disk a token, at 60 tokens a second a stream, at a linger of 0.5 s and at the default,
  which is shorter: a record has a head, and what shares it is what one flush has of a stream.
- Bytes of replies that were released before a flush came to them.
- Bytes written over the whole lives of replies, released at their ends, for several mixes of
  lengths; and the size of the WAL meanwhile. Time is compressed: a tick stands for one flush a
  second (60 tokens) and takes 50 ms, longer where the daemon needs that (a Drain ends each), so a
  reply of 120 s is 120 ticks; `reclaim_seconds` is 30 ticks, its 30 s. Payload is the text that
  was said, five bytes a token; beside it the same to the records of a first write, body and
  directory entry, which have a length for each token and a head: what is carried, and no more.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from itertools import product

from walld_client.encoding import event_frames
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer
from bench.load.offering import Offering, compiled
from bench.report.numbers import median, spread
from bench.report.table import Figure
from bench.run import Run
from walld import limits
from walld.wal.layout import ENTRY_BYTES

__all__ = ["measure"]

_TOKENS_A_FLUSH = 15
_TICK_SECONDS = 1.0
_TOKENS_A_TICK = 60
_TEXT_BYTES = 5
_LINGERS = {"500": "0.5 s linger", "auto": "default linger"}
_TICK_TAKES = 0.05
_RECLAIM_SECONDS = str(limits.RECLAIM_SECONDS_DEFAULT / _TICK_SECONDS * _TICK_TAKES)
_MIXES: dict[str, list[tuple[float, float, int]]] = {
    "2 s": [(1.0, 2.0, 1000)],
    "20 s": [(1.0, 20.0, 1000)],
    "120 s": [(1.0, 120.0, 1000)],
    "2, 20 and 120 s": [(0.34, 2.0, 1000), (0.33, 20.0, 1000), (0.33, 120.0, 1000)],
    "2 s and some of 10 min": [(0.9, 2.0, 1000), (0.1, 600.0, 1000)],
}
"""Share of the live streams, seconds a reply lasts, live streams in all."""


# --- writes a flush -----------------------------------------------------------------------------


def _flush_writes(run: Run, streams: int, flushes: int) -> tuple[float, float]:
    """(median writes of a flush, median of what they may be)."""
    conns = min(100, streams)
    each = streams // conns
    writes, most = [], []
    with run.daemon("--flush-linger-ms", "1500") as daemon:
        peers = [daemon.agent() for _ in range(conns)]
        for at, peer in enumerate(peers):
            starts = [wire.Start(k + 1, 0, f"w{at}-{k}", f"s{at}") for k in range(each)]
            peer.socket.sendall(b"".join(map(encode, starts)))
        for peer in peers:
            peer.drain()
        name, size = "walld_wal_writes_total", "walld_wal_write_bytes_total"
        for flush in range(flushes):
            before = daemon.metrics()
            for peer in peers:
                _speak(peer, dict.fromkeys(range(1, each + 1), 1 + flush * _TOKENS_A_FLUSH))
            _taken(daemon, before, streams * _TOKENS_A_FLUSH)
            peers[0].drain()
            now = daemon.metrics()
            writes.append(now[name] - before[name])
            most.append(math.ceil((now[size] - before[size]) / limits.BATCH_BYTES_CUT))
        for peer in peers:
            peer.socket.close()
    return median(writes), median(most)


def _taken(daemon: Daemon, before: dict[str, float], events: int) -> None:
    """Until the daemon has taken in so many tokens."""
    name = 'walld_events_received_total{kind="token"}'
    while daemon.metrics()[name] - before[name] < events:
        time.sleep(0.002)


def _speak(peer: Peer, first_seqs: dict[int, int]) -> None:
    """15 tokens on each stream of a connection."""
    out = []
    for number, first in first_seqs.items():
        prefix = event_frames.text_prefix(event_frames.TOKEN, number)
        out += [
            event_frames.plain_text(prefix, seq, b"abcde")
            for seq in range(first, first + _TOKENS_A_FLUSH)
        ]
    peer.socket.sendall(b"".join(out))


def _flush_figures(run: Run) -> list[Figure]:
    shown = []
    worst = 0.0
    for at, streams in enumerate((1, 100, 10_000)):
        run.step(0.02 + at * 0.03, f"flushes of {streams} streams")
        writes, most = _flush_writes(run, streams, int(run.pick(7, 3)))
        worst = max(worst, writes / most)
        shown.append(f"{streams:,} streams {writes:.0f} of {most:.0f}")
    return [
        Figure("writes", "writes a flush to ceil(bytes / 256 KiB)", worst, "x", 1.0,
               note="writes a flush (most that is allowed): " + ", ".join(shown))
    ]  # fmt: skip


# --- bytes a token ------------------------------------------------------------------------------


def _token_figure(run: Run, streams: int, linger: str, seconds: float) -> Figure:
    conns = min(100, streams)
    program = compiled(run.folder)
    with (
        run.daemon("--flush-linger-ms", linger) as daemon,
        Offering(
            program, daemon.socket_path, conns, streams // conns, 60, run.cores.agents
        ) as offering,
    ):
        offering.begin(1.0)  # what a Start takes is not a token's
        offering.result()
        daemon.settle()
        before = daemon.metrics()
        offering.begin(seconds)
        said = offering.result()
        daemon.settle()
        after = daemon.metrics()
        offering.end()
    name = "walld_wal_write_bytes_total"
    value = (after[name] - before[name]) / said["taken"]
    plural = "s" if streams > 1 else ""
    name = f"bytes on disk a token, {streams:,} stream{plural} of 60/s, {_LINGERS[linger]}"
    return Figure("writes", name, value, "B", 8.0)


# --- released before a flush --------------------------------------------------------------------


def _released_figure(run: Run, replies: int) -> Figure:
    """Begun, said, ended and released between two flushes: what of them is written."""
    with run.daemon("--flush-linger-ms", "1500") as daemon, daemon.agent() as peer:
        peer.drain("synced")
        name = "record_bytes_first"
        before = daemon.status()[name]
        out = []
        for number in range(1, replies + 1):
            start = wire.Start(number, 0, f"released-{number}", "released")
            prefix = event_frames.text_prefix(event_frames.TOKEN, number)
            out += [encode(start)]
            out += [
                event_frames.plain_text(prefix, seq, b"abcde") for seq in range(1, _TOKENS_A_TICK)
            ]
            out += [encode(wire.End(number, _TOKENS_A_TICK, clean=True))]
            out += [encode(wire.Release(number, _TOKENS_A_TICK + 1))]
        peer.socket.sendall(b"".join(out))
        peer.drain("synced")
        written = daemon.status()[name] - before
    return Figure("writes", "bytes of replies released before a flush", written, "B", 0,
                  note=f"{replies} replies of {_TOKENS_A_TICK - 1} tokens")  # fmt: skip


# --- over replies' lives ------------------------------------------------------------------------


@dataclass(slots=True)
class _Life:
    """A reply that is being said."""

    number: int
    ticks_left: int
    kind: int
    next_seq: int = 1


@dataclass(slots=True)
class _Lives:
    """What a mix came to."""

    written: float = 0.0
    text: float = 0.0
    first: float = 0.0
    """What a first write of each record takes."""
    carried: float = 0.0
    replies: int = 0
    ticks: int = 0
    took: list[float] = field(default_factory=list)
    """Seconds of each tick, without its rest."""
    wal: list[float] = field(default_factory=list)
    """Size of the WAL by what it may be, at every look."""
    left_bytes: float = 0.0


class _Agents:
    """Replies of a mix, on a few connections. One that ends is followed by one of its kind."""

    def __init__(self, daemon: Daemon, mix: list[tuple[float, float, int]]) -> None:
        self.peers = [daemon.agent() for _ in range(8)]
        self.lives: list[list[_Life]] = [[] for _ in self.peers]
        self._numbers = [0] * len(self.peers)
        self._ticks = [max(1, round(seconds / _TICK_SECONDS)) for _, seconds, _ in mix]
        self.records = self.replies = 0
        self._chance = random.Random(6)
        for kind, (share, _, streams) in enumerate(mix):
            for at in range(int(share * streams)):
                # Begun in the middle, so that ends are spread from the first tick on.
                left = self._chance.randrange(self._ticks[kind]) + 1
                self._open(at % len(self.peers), kind, left, [])

    def _open(self, at: int, kind: int, ticks: int, out: list[bytes]) -> None:
        self._numbers[at] += 1
        number = self._numbers[at]
        stream_id = f"{self.peers[at].producer.hex()}-{number}"
        opening = encode(wire.Start(number, 0, stream_id, f"session-{number % 100}"))
        self.lives[at].append(_Life(number, ticks, kind))
        if out:
            out.append(opening)
        else:
            self.peers[at].socket.sendall(opening)

    def tick(self, last: bool = False) -> None:
        """60 tokens on every stream, in a Run each; those that are over end and are released."""
        lengths, text = bytes([_TEXT_BYTES]) * _TOKENS_A_TICK, b"abcde" * _TOKENS_A_TICK
        for at, peer in enumerate(self.peers):
            out: list[bytes] = []
            ended: list[_Life] = []
            for life in self.lives[at]:
                out.append(encode(wire.Run(life.number, life.next_seq, 3, lengths, text)))
                life.next_seq += _TOKENS_A_TICK
                life.ticks_left -= 1
                if life.ticks_left <= 0 or last:
                    ended.append(life)
            self.records += len(self.lives[at])
            over = {life.number for life in ended}
            self.lives[at] = [life for life in self.lives[at] if life.number not in over]
            for life in ended:
                out.append(encode(wire.End(life.number, life.next_seq, clean=True)))
                if not last:
                    self._open(at, life.kind, self._ticks[life.kind], out)
            peer.socket.sendall(b"".join(out))
            peer.drain()
            # The app has saved what it has: released a moment after its last words were written.
            releases = [encode(wire.Release(life.number, life.next_seq + 1)) for life in ended]
            peer.socket.sendall(b"".join(releases))
            self.replies += len(ended)


def _mix(run: Run, name: str, seconds: float, at: float) -> _Lives:
    mix = _MIXES[name]
    with run.daemon("--reclaim-seconds", _RECLAIM_SECONDS) as daemon:
        agents = _Agents(daemon, mix)
        lives = _Lives()
        begun = time.monotonic()
        while (ticked_at := time.monotonic()) < begun + seconds:
            agents.tick()
            lives.took.append(time.monotonic() - ticked_at)
            lives.ticks += 1
            time.sleep(max(0.0, ticked_at + _TICK_TAKES - time.monotonic()))
            now = daemon.status()
            allowed = 2 * now["wal_live_bytes"] + 2 * limits.SEGMENT_BYTES_MAX
            lives.wal.append(now["wal_size_bytes"] / allowed)
            run.step(at, f"replies of {name}, tick {lives.ticks}")
        agents.tick(last=True)
        for peer in agents.peers:
            peer.drain("synced")
        lives.left_bytes = _emptied(daemon)
        now, counted = daemon.status(), daemon.metrics()
        lives.written = counted["walld_wal_write_bytes_total"]
        lives.text = agents.records * _TOKENS_A_TICK * _TEXT_BYTES
        lives.first = now["record_bytes_first"] + ENTRY_BYTES * agents.records
        lives.carried = now["record_bytes_carried"]
        lives.replies = agents.replies
        for peer in agents.peers:
            peer.socket.close()
    return lives


def _emptied(daemon: Daemon) -> float:
    """Bytes in the log when all is released and the keeper has had its time."""
    deadline = time.monotonic() + 10
    while (left := daemon.status()["wal_size_bytes"]) > 4096 and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _life_figures(name: str, lives: _Lives) -> list[Figure]:
    note = (
        f"replies of {name}: {lives.replies:,} replies in {lives.ticks} ticks, which took "
        f"{median(lives.took) * 1000:.0f} of {_TICK_TAKES * 1000:.0f} ms, "
        f"{lives.text / 1e6:.0f} MB of text, {lives.written / 1e6:.0f} MB written, "
        f"{lives.carried / 1e6:.0f} MB of it carried; "
        f"{lives.left_bytes:.0f} bytes left in the WAL after all were released"
    )
    return [
        Figure("writes", f"bytes written to text, {name}", lives.written / lives.text,
               "x", 2.0, note=note),
        Figure("writes", f"bytes written to a first write's, {name}", lives.written / lives.first,
               "x"),
        Figure("writes", f"WAL to 2 x live + 2 segments, at most, {name}", max(lives.wal), "x",
               1.0, spread=spread(lives.wal)),
    ]  # fmt: skip


def measure(run: Run) -> list[Figure]:
    """All of it."""
    figures = [*_flush_figures(run), _released_figure(run, 50)]
    sizes = (1, 100) if run.quick else (1, 100, 1000)
    for at, (streams, linger) in enumerate(product(sizes, _LINGERS)):
        run.step(0.1 + at * 0.03, f"{streams} streams of 60/s, {_LINGERS[linger]}")
        # One stream alone has few flushes: the first and the last must not be all of them.
        seconds = run.pick(10, 4) if streams == 1 else run.pick(6, 1)
        figures.append(_token_figure(run, streams, linger, seconds))
    names = list(_MIXES) if not run.quick else ["2, 20 and 120 s"]
    for at, name in enumerate(names):
        share = 0.3 + 0.7 * at / len(names)
        figures += _life_figures(name, _mix(run, name, run.pick(14, 3), share))
    return figures
