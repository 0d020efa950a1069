"""Each peer of the bench records what it is given: all of it can be read back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.machine import Cores
from bench.peers.costs import Plan, rounds_of
from bench.peers.known import PEERS
from bench.run import Run

CALLS = 30


@pytest.mark.parametrize("key", PEERS)
def test_what_a_peer_was_given_can_be_read_back(
    key: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reason = PEERS[key]().why_not()
    if reason is not None:
        pytest.skip(f"{PEERS[key]().name} {reason}")
    cores = os.sched_getaffinity(0)
    run = Run(
        Path(tmp_path_factory.mktemp("p")), Cores(cores, cores), True, lambda _share, _at: None
    )
    told = rounds_of(
        run, [key], Plan(1, 0.1, 20.0, CALLS, 0.0)
    )  # RuntimeError where one is missing
    (one,) = told.values()
    assert [len(took) for took in one.took["60/s"]] == [6]
    assert [len(took) for took in one.took["flat out"]] == [CALLS]
