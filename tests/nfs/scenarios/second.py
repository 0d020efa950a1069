"""Two daemons on one directory, each by a mount of its own.

Owns: that the second is refused while the first lives, also while that stands still. Refuses:
what follows when the server has given the lock away (`takeover.py`).
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

from nfs.agents import Pace, named
from nfs.exports import mounted
from nfs.trial import HARD, Trial, staged

__all__ = ["run"]

_REFUSED: Final = 1
_WORDS: Final = "another walld owns this data directory"
_FROZEN_SECONDS: Final = 15.0
"""Longer than the server's lease."""


def run() -> list[str]:
    """Its figures."""
    with (
        staged("second") as trial,
        mounted(trial.export, f"{HARD},nosharecache", name="second-mount") as other,
    ):
        daemon = trial.started()
        agent = trial.spawn(daemon, named("a", 10, 300), Pace(2, 20, 20))
        trial.until(agent.board.is_told, "a first ack")
        _refused(trial, other / "data", "beside it")
        daemon.signal(signal.SIGSTOP)
        time.sleep(_FROZEN_SECONDS)
        _refused(trial, other / "data", "while the first stood still")
        daemon.signal(signal.SIGCONT)
        trial.finish()
        trial.end(daemon)
        return trial.figures


def _refused(trial: Trial, data: Path, when: str) -> None:
    begun = time.monotonic()
    late = trial.start(data, f"late-{len(trial.daemons)}")
    trial.until(lambda: not late.is_alive(), "the second daemon's refusal", 40.0)
    assert late.exit_code() == _REFUSED, f"{when}: exit {late.exit_code()}: {trial.log(late)}"
    assert _WORDS in trial.log(late), f"{when}: {trial.log(late)}"
    trial.figures.append(f"{when}: refused with exit 1 in {time.monotonic() - begun:.1f} s")
