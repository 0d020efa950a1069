"""Twenty processes of a warm one resume a session at once: one gets it, the others are told who."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents.process import AgentProcess
from daemon_process import DaemonProcess, until

RACERS, ROUNDS = 20, 5
WINNERS = {
    "lives": "submitted",
    "completes": "completed",
    "gives up": "interrupted",
    "dies": "interrupted",
}
"""What who gets it does at once -> the state its turn comes to."""
BATCHES = [0, *[pytest.param(number, marks=pytest.mark.sweep) for number in range(1, 10)]]
"""20 rounds at each change, 200 in a sweep."""
WHO = re.compile(
    r"turn (\S+), (submitted|completed|interrupted),"
    r" process (\d+) of boot ([0-9a-f-]{36}), since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"
)


@contextmanager
def warm(home: Path, daemon: DaemonProcess) -> Iterator[AgentProcess]:
    racers = AgentProcess(home, "racers.py", {"socket": daemon.socket_path})
    try:
        yield racers
    finally:
        racers.close()


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("winner", WINNERS)
def test_one_gets_it_and_the_others_are_told_who(
    daemon: DaemonProcess, tmp_path: Path, winner: str, batch: int
) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with warm(tmp_path, daemon) as racers:
        for number in range(ROUNDS):
            name = f"{winner} {batch}.{number}"
            racers.say({"session": name, "racers": RACERS, "winner": winner})
            told: list[dict[str, Any]] = racers.hear()["told"]
            (won,) = [one for one in told if "turn" in one]
            assert len(told) == RACERS
            for one in told:
                if one is won:
                    continue
                assert one["code"] == "already_resumed"
                who = WHO.fullmatch(one["got"])
                assert who is not None, one["got"]
                turn_id, state, pid, of_boot, since = who.groups()
                assert (turn_id, int(pid), of_boot) == (won["turn"], won["pid"], boot)
                assert state in ("submitted", WINNERS[winner])
                assert since == at(daemon, name, turn_id)
            racers.say({})
            assert racers.hear() == {"gone": True}
            ends = won["turn"], WINNERS[winner].replace("submitted", "interrupted")
            until(lambda: newest(daemon, name) == ends, "its end")  # noqa: B023 - called here


def at(daemon: DaemonProcess, name: str, turn_id: str) -> str:
    """When that turn was submitted, as the log has it."""
    (one,) = [one for one in daemon.reader.session(name).events() if one["id"] == turn_id]
    return str(one["at"])


def newest(daemon: DaemonProcess, name: str) -> tuple[str, str]:
    """The turn that goes on, and its state; that before it and it are all there are."""
    state = daemon.reader.session(name).state()
    assert state is not None
    _, turn = state["turns"]
    return turn["turn_id"], turn["state"]
