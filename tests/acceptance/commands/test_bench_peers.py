"""Each peer of the bench records what it is given: all of it can be read back."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench.costs import ingest
from bench.machine import Cores
from bench.peers import costs
from bench.peers.by_hand import QueueAndThread
from bench.peers.costs import Plan, rounds_of
from bench.peers.known import PEERS
from bench.peers.peer import Peer
from bench.run import Run

CALLS = 30
PLAN = Plan(1, 0.1, 20.0, CALLS, 0.0)


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """In a folder whose path is short enough for a socket."""
    cores = os.sched_getaffinity(0)
    return Run(tmp_path_factory.mktemp("p"), Cores(cores, cores), True, lambda _share, _at: None)


@pytest.mark.parametrize("key", PEERS)
def test_what_a_peer_was_given_can_be_read_back(key: str, run: Run) -> None:
    reason = PEERS[key]().why_not()
    if reason is not None:
        pytest.skip(f"{PEERS[key]().name} {reason}")
    told = rounds_of(run, [key], PLAN)  # RuntimeError where one is missing
    (one,) = told.values()
    assert [len(took) for took in one.took["60/s"]] == [6]
    assert [len(took) for took in one.took["flat out"]] == [CALLS]


def test_what_is_poured_is_there_and_gives_ratios(run: Run) -> None:
    """RuntimeError where a server has not what it was sent."""
    taken = ingest.taken_by(run, list(ingest._EVENTS), 2, 0.01)
    assert {"walld", "backlog", "wall"} <= set(taken)
    assert taken["backlog"].event_bytes < taken["walld"].event_bytes / 3
    figures = ingest.ratios(taken)
    assert len(figures) == 2 * sum(
        key in taken for others in ingest._GOALS.values() for key in others
    )
    assert all(figure.value > 0 for figure in figures)


def test_no_round_begins_when_the_time_is_over_but_the_first(run: Run) -> None:
    """And what was poured is counted by the rounds there were."""
    (told,) = rounds_of(run, ["queue"], replace(PLAN, rounds=3, until=0.0)).values()
    assert [len(took) for took in told.took["60/s"]] == [6]
    (taken,) = ingest.taken_by(run, ["wall"], 3, 0.01, until=0.0).values()
    assert len(taken.rates) == 1


class Forger(QueueAndThread):
    """There is a token in its file that nobody gave it."""

    def start(self, home: Path, cores: set[int]) -> None:
        (home / "events.jsonl").write_text('{"text": "forged"}\n')


class Broken(QueueAndThread):
    """Its server does not start."""

    name = "broken"

    def start(self, home: Path, cores: set[int]) -> None:
        raise RuntimeError("no room for its server")


def test_a_peer_that_has_not_what_it_was_given_ends_the_question(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "present", lambda _keys: {"queue": Forger()})
    with pytest.raises(RuntimeError, match=r"queue: 96 tokens appended, 97 read back"):
        rounds_of(run, ["queue"], PLAN)


def test_a_peer_that_does_not_start_is_left_out_and_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers: dict[str, Peer] = {"redis": Broken(), "queue": QueueAndThread()}
    monkeypatch.setattr(costs, "present", lambda _keys: peers)
    told = rounds_of(run, peers, PLAN)
    assert list(told) == ["queue"]
    assert "broken is left out: no room for its server" in capsys.readouterr().err
