"""The daemon is killed in the middle of a stream, again and again, and the next one goes on.

Owns: the kills, what must lie at the server after each. Refuses: kills of agents (`kernel.kills`).
"""

from __future__ import annotations

import time
from random import Random
from typing import Final

from nfs.agents import Pace, named
from nfs.trial import staged

__all__ = ["run"]

_KILLS: Final = 5


def run() -> list[str]:
    """Its figures."""
    random = Random("nfs killed")
    with staged("killed") as trial:
        daemon = trial.started()
        trial.spawn(daemon, named("a", 1, 20), Pace(3, 25, 10, "written"))
        trial.spawn(daemon, named("b", 200, 3000), Pace(2, 15, 15))
        for _ in range(_KILLS):
            before = [one.synced for one in trial.agents]

            def went_on(before: list[list[int]] = before) -> bool:
                now = [one.synced for one in trial.agents]
                return all(old != new for old, new in zip(before, now, strict=True))

            trial.until(went_on, "acks for every agent")
            time.sleep(random.uniform(0, 1.5))
            daemon.kill()
            trial.check_stored()
            daemon = trial.started()
            trial.check_answers(daemon)
        trial.finish()
        assert trial.metrics(daemon)["walld_lost_acked_total"] == 0
        trial.end(daemon)
        return [f"{_KILLS} kills", *trial.figures]
