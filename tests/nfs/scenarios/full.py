"""The server's disk is full; then it has room again.

Owns: filling it at the server's side, what must go on meanwhile, and what must be there afterwards.
Refuses: local disks that are full (`kernel.disks`).

On NFS a write goes to the page cache and "no space" may first show at the sync.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from nfs.agents import END, HUSH, RELEASE, Pace, PacedAgent, named
from nfs.trial import Trial, staged

__all__ = ["run"]

_MEGABYTES: Final = 16
_LEFT_BYTES: Final = 64 << 10
_FULL_SECONDS: Final = 8.0
_END_SECONDS_MAX: Final = 30.0
_CHUNK: Final = 1 << 18


def run() -> list[str]:
    """Its figures."""
    with staged("full", _MEGABYTES) as trial:
        daemon = trial.started()
        talker = trial.spawn(daemon, named("t", 1500, 4000), Pace(2, 30, 30, drain_seconds=0.1))
        leaver = trial.spawn(daemon, named("l", 1, 20), Pace(2, 10))
        trial.until(lambda: talker.board.is_told() and leaver.board.is_told(), "first acks")
        leaver.reins.wish = HUSH
        trial.until(lambda: leaver.reins.is_quiet and leaver.is_all_synced, "one that rests")
        ballast = trial.export.path / "ballast"
        _fill(ballast)
        try:
            seen = trial.until(lambda: daemon.status()["state"] != "ok", "trouble that is said")
            status = daemon.status()
            trial.figures.append(
                f"{status['state']} after {seen:.1f} s: {status['trouble']}; "
                f"{status['unsynced_bytes']} B not synced"
            )
            time.sleep(_FULL_SECONDS)
            wrong = _while_full(trial)
        finally:
            ballast.unlink()
        back = trial.until(lambda: daemon.status()["state"] == "ok", "a state that is ok")
        trial.figures.append(f"ok {back:.1f} s after there was room")
        # Nobody releases any more: what is compared is what stays.
        talker.reins.wish = END
        trial.until(lambda: all(one.board.is_finished for one in trial.agents), "agents that end")
        _count(trial)
        trial.end(daemon)
        assert not wrong, "; ".join([*wrong, *trial.figures])
        return trial.figures


def _while_full(trial: Trial) -> list[str]:
    """What is promised meanwhile and does not come; the rest is tried all the same."""
    daemon, leaver = trial.daemons[0], trial.agents[1]
    wrong = []
    if (state := daemon.status())["state"] != "disk_full":
        wrong.append(f"the server is full and the state is {state['state']} ({state['trouble']})")
    # Ends and a release are taken, out of the reserve, while there is no other room.
    leaver.reins.wish = RELEASE
    try:
        took = trial.until(
            lambda: _has_ended(leaver) and leaver.is_all_synced, "ends", _END_SECONDS_MAX
        )
        trial.figures.append(f"two ends and a release synced in {took:.1f} s on the full disk")
    except AssertionError:
        kept = (trial.stored / "reserve").exists()
        wrong.append(
            f"an end was not synced within {_END_SECONDS_MAX:.0f} s on the full disk; "
            f"the reserve is {'still there' if kept else 'given up'}"
        )
    segments = [f"{one.name.lstrip('0')} {one.stat().st_size}" for one in _segments(trial)]
    trial.figures.append(f"segments then: {', '.join(segments)}")
    for line in wrong:
        print(line, flush=True)
    return wrong


def _has_ended(agent: PacedAgent) -> bool:
    """By acks: a drain waits for what others have said, too."""
    return all(agent.board.row(at).ended for at in range(agent.board.streams))


def _segments(trial: Trial) -> list[Path]:
    return sorted((trial.stored / "wal").glob("*.wal"))


def _fill(path: Path) -> None:
    """As a process beside the server would: all but a little."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            free = os.statvfs(path.parent)
            size = free.f_bavail * free.f_frsize - _LEFT_BYTES
            if size <= 0:
                break
            file.write(bytes(min(size, _CHUNK)))
            os.fsync(file.fileno())


def _count(trial: Trial) -> None:
    """What was dropped is counted, and is a gap."""
    daemon = trial.daemons[0]
    dropped = trial.metrics(daemon)['walld_events_discarded_total{reason="disk_full"}']
    missing = sum(
        gap.last_seq - gap.first_seq + 1 for reply in daemon.replies() for gap in reply.gaps
    )
    trial.figures.append(f"{dropped:.0f} events dropped for want of room, {missing} in gaps")
    assert missing == dropped, f"{dropped:.0f} events counted as dropped, {missing} are missing"
