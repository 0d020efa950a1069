"""Lines of a session between log and file: which may go there, and which stay after damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from damaged_directory import AT_MS, GONE, UID, DamagedDirectory, row
from engine_world import World
from virtual_daemon import Home, living, run
from walld_client.wire import messages as wire

from walld.daemon.session_store.checkpoints import _Begun
from walld.engine.session_log import SessionLog
from walld.ledger.line import chain_of, header_line, make_line
from walld.sessions.state.session_state import SessionState
from walld.wal.layout import Flag
from walld.wal.records import Begin, Happened

SESSION = "s"


def lines(count: int) -> list[bytes]:
    made, chain = [], chain_of(header_line(UID, SESSION))
    for seq in range(1, count + 1):
        line = make_line(seq, f"e{seq}", AT_MS, "message", b'{"content":"x"}', chain)
        made.append(line)
        chain = chain_of(line)
    return made


def record(seq: int, line: bytes) -> tuple[Any, ...]:
    """One line of stream 7, which begins the session."""
    item = Happened(0, wire.Custom(0, seq, "line", line))
    if seq > 1:
        return row(7, seq, seq, item)
    begin = Begin(UID, b"", 0, "", SESSION, None, None, None, AT_MS, GONE)
    return row(7, 0, 1, begin, item, flags=Flag.BEGIN)


def test_lines_behind_a_damaged_batch_are_kept_behind_a_break(tmp_path: Path) -> None:
    """They were acknowledged: damage to the log is no torn end, behind which a start cuts."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    taken = lines(4)
    for seq, line in enumerate(taken, 1):
        made.batch(record(seq, line))
    made.batch(row(8, 0, 0, Begin(UID, b"p" * 16, 1, "r", "t", None, None, None, AT_MS, GONE)))
    made.flip(3, -3)
    made.close()

    async def main() -> None:
        async with living(Home(tmp_path)):
            pass

    run(main)
    (events,) = made.path.glob("sessions/*/*/events.jsonl")
    assert events.read_bytes().splitlines(keepends=True)[1:] == [taken[0], taken[1], taken[3]]


def test_a_checkpoint_waits_until_each_of_its_streams_is_synced() -> None:
    """FORMAT.md, "Session": a power cut must not take from the log what stands in the file."""
    world = World()
    agent = world.connect()
    streams = [world.begin(agent)]
    world.flush()
    world.sync()
    streams.append(world.begin(agent, 2))
    world.flush()
    ledger = SessionLog(UID, SESSION, SessionState(), SessionLog.first_chain(UID, SESSION))
    assert not _Begun(ledger, [], streams, None, 0).is_synced
    world.sync()
    assert _Begun(ledger, [], streams, None, 0).is_synced
