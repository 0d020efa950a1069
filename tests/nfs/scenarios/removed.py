"""A segment is removed at the server, and another one replaced, underneath a daemon that writes.

Owns: that it is seen, that what is not synced is written again, that what is acknowledged from then
on is there, and that what went with the removed file is said. Refuses: damage to bytes
(`simulation.rot`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import walld_client
from daemon_process import environment
from kernel import words
from walld_client.recovered.partial import from_recovered

from nfs.agents import HUSH, TALK, Pace, PacedAgent, named
from nfs.trial import Trial, staged
from walld.cli.inspect.offline import find

__all__ = ["run"]

_AGAIN: Final = "batches written again"
"""How the daemon puts it that the file has gone, whatever it was that told it."""
_SEEN_SECONDS_MAX: Final = 100.0
"""Longer than a client believes what it knows of a directory (acdirmax)."""
_SETTLE_SECONDS: Final = 3.0
_CLEAN: Final = 0
_PROVEN: Final = 3


def run() -> list[str]:
    """Its figures."""
    with staged("removed") as trial:
        daemon = trial.started()
        agent = trial.spawn(daemon, named("a", 10, 300), Pace(2, 20, 20))
        trial.until(lambda: len(agent.synced) == 2 and min(agent.synced) > 0, "first acks")
        # The next daemon's segment is another one: where replies began stays where it is.
        daemon.kill()
        daemon = trial.started()
        # Seqs that were synced into a file when it went; only these may be missing.
        excused: list[set[int]] = [set(), set()]
        for what, spoil in (("removed", _remove), ("replaced", _replace)):
            before = agent.synced
            trial.until(lambda b=before: min(agent.synced) > max(b) + 10, "acks")  # type: ignore[misc]
            _underneath(trial, agent, what, spoil, excused)
        trial.finish(releases=False)
        acknowledged = agent.synced
        daemon.kill()
        found = find(str(trial.stored))
        replies = {one.stream_id: from_recovered(one) for one in found.replies}
        wrong = []
        for at, synced in enumerate(acknowledged):
            stream_id = f"{agent.name}.{at}"
            last = min(agent.board.row(at).tokens, synced)
            wrong += _lost(stream_id, last, excused[at], replies.get(stream_id))
        _said(trial, agent, found.doubts)
        agent.kill()
        agent.check()
        assert not wrong, "; ".join([*wrong, *trial.figures])
        return trial.figures


def _newest(trial: Trial) -> Path:
    return max((trial.stored / "wal").glob("*.wal"))


def _remove(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    """By a copy: the same bytes, another file."""
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.rename(path)


def _underneath(
    trial: Trial,
    agent: PacedAgent,
    what: str,
    spoil: Callable[[Path], None],
    excused: list[set[int]],
) -> None:
    """Do it while nobody talks and all is synced, then wait until the daemon says so."""
    daemon = trial.daemons[-1]
    agent.reins.wish = HUSH
    trial.until(lambda: agent.reins.is_quiet and agent.is_all_synced, "all of it synced")
    time.sleep(_SETTLE_SECONDS)  # the batch that says how far the last sync has reached
    said = trial.log(daemon).count(_AGAIN)
    path = _newest(trial)
    spoil(path)
    then = agent.synced
    if not path.exists():  # a copy holds all that was synced
        for seqs, synced in zip(excused, then, strict=True):
            seqs.update(range(1, synced + 1))
    agent.reins.wish = TALK
    late = then

    def is_said() -> bool:
        nonlocal late
        told = agent.synced
        if trial.log(daemon).count(_AGAIN) > said:
            return True
        late = told
        return False

    seconds = trial.until(is_said, f"word of the {what} segment", _SEEN_SECONDS_MAX)
    trial.figures.append(
        f"{path.name.lstrip('0')} {what}: said after {seconds:.1f} s, "
        f"{sum(late) - sum(then)} events acknowledged as synced until then"
    )
    print(trial.figures[-1], flush=True)


def _lost(
    stream_id: str, last_seq: int, excused: set[int], reply: walld_client.PartialReply | None
) -> list[str]:
    """What was synced and is not there, though nothing excuses it."""
    if reply is None:
        return [f"{stream_id} is gone, and was acknowledged up to {last_seq}"]
    there: set[int] = set()
    for piece in reply.segments:
        if piece.kind == "gap":
            continue
        seqs = set(range(piece.first_seq, piece.last_seq + 1))
        if piece.text != words.said(stream_id, piece.first_seq, piece.last_seq) or there & seqs:
            return [f"{stream_id} {piece.first_seq}..{piece.last_seq}: not what was said"]
        there |= seqs
    lost = set(range(1, last_seq + 1)) - there - excused
    if not lost:
        return []
    which = f"{len(lost)} events, {min(lost)}..{max(lost)}"
    return [f"{stream_id}: {which}, were synced after the file had gone, and are not there"]


def _said(trial: Trial, agent: PacedAgent, doubts: list[str]) -> None:
    """Something was lost: nobody calls this directory clean, or proves that nothing was there."""
    code, text = _walld("fsck", str(trial.stored), "--json")
    trial.figures.append(f"fsck: exit {code}; recover --data: {len(doubts)} doubts")
    assert code != _CLEAN, f"fsck calls a log clean that a segment was removed from: {text}"
    json.loads(text)
    for session in (f"session {agent.name}", "session of nobody"):
        code, text = _walld("recover", session, "--data", str(trial.stored))
        assert code != _PROVEN, f"`nothing` is called proven: {text}"


def _walld(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "walld", *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr
