"""A machine is suspended, its lease runs out, another takes the directory over; then it wakes.

Owns: two machines as the server sees them, the first one's daemon stopped and its network cut; that
the thawed daemon ends with exit 3, and that all that it and the other one acknowledged, whenever
they did, is there. Refuses: a daemon that is frozen while its kernel lives (`second.py`): the
lock stays then.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from kernel.judge import WrongError
from kernel.processes import RealDaemon

from nfs.agents import END, Pace, PacedAgent, named
from nfs.exports import LEASE_SECONDS, FarMachine, mounted
from nfs.trial import HARD, Trial, staged

__all__ = ["run"]

_FENCED: Final = 3
_REFUSED: Final = 1
_TAKEOVER_SECONDS_MAX: Final = 90.0
_EXIT_SECONDS_MAX: Final = 45.0


def run() -> list[str]:
    """Its figures."""
    first_way, second_way = FarMachine("first"), FarMachine("next")
    with (
        staged("takeover", way=first_way) as trial,
        mounted(trial.export, HARD, second_way, "takeover-next") as other,
    ):
        first = trial.started()
        old = trial.spawn(first, named("old", 10, 300), Pace(2, 20, 20))
        trial.until(old.board.is_told, "a first ack")
        time.sleep(2)
        first.signal(signal.SIGSTOP)
        first_way.cut()
        cut_at = time.monotonic()
        try:
            time.sleep(LEASE_SECONDS + 2)
            following = _take_over(trial, other / "data")
            took = time.monotonic() - cut_at
            new = trial.spawn(following, named("new", 10, 300), Pace(2, 20, 20))
            trial.until(new.board.is_told, "a first ack of the next daemon")
            synced = old.synced
        finally:
            first_way.mend()
            first.signal(signal.SIGCONT)
        trial.figures.append(f"taken over {took:.1f} s after the cut, {_lock(trial)}")
        wrong = _awake(trial, first, old, synced)
        new.reins.wish = END
        trial.until(lambda: new.board.is_finished, "the end of the next daemon's agent")
        first.kill()
        old.kill()
        wrong += _missing(trial, following)
        assert not wrong, "; ".join(wrong)
        trial.end(following)
        return trial.figures


def _lock(trial: Trial) -> str:
    words = (trial.stored / "LOCK").read_text().split()
    return f"LOCK at the server says epoch {words[3]}"


def _awake(trial: Trial, first: RealDaemon, old: PacedAgent, synced: list[int]) -> list[str]:
    """What the thawed daemon did wrong."""
    wrong = []
    begun = time.monotonic()
    with suppress(AssertionError):
        trial.until(lambda: not first.is_alive(), "the fenced daemon's end", _EXIT_SECONDS_MAX)
    code, seconds = first.exit_code(), time.monotonic() - begun
    if code is None:
        status = first.status()
        wrong.append(
            f"the fenced daemon lives {seconds:.0f} s after it woke: state {status['state']} "
            f"({status['trouble']}), epoch {status['epoch']}, {_lock(trial)}"
        )
    elif code != _FENCED:
        wrong.append(f"the fenced daemon ended with exit {code}")
    else:
        trial.figures.append(f"the first one ended with exit 3, {seconds:.1f} s after it woke")
    if old.synced != synced:  # it had looked at the epoch behind that sync, and was the owner then
        trial.figures.append(f"awake it told of a sync before: seqs {synced} became {old.synced}")
    for line in wrong:
        print(line, flush=True)
    return wrong


def _missing(trial: Trial, following: RealDaemon) -> list[str]:
    """What either daemon acknowledged as synced is there, as the living one answers."""
    trial.promise("synced")
    try:
        trial.compare(following.replies())
    except WrongError as error:
        return [str(error)]
    return []


def _take_over(trial: Trial, data: Path) -> RealDaemon:
    """Another start as often as the server still knows the first one's lock."""
    begun = time.monotonic()
    while True:
        late = trial.start(data, f"next-{len(trial.daemons)}")
        with suppress(AssertionError):
            trial.ready(late)
            return late
        assert late.exit_code() == _REFUSED, f"exit {late.exit_code()}: {trial.log(late)[-2000:]}"
        assert time.monotonic() - begun < _TAKEOVER_SECONDS_MAX, "the lock was never given away"
