"""Who asked last, and the last who was somebody else."""

from __future__ import annotations

from walld import limits
from walld.daemon.transport.recent_askers import RecentAskers


def test_who_asked_is_known_for_a_while_and_beside_oneself() -> None:
    askers = RecentAskers[int]()
    assert not askers.anybody(1.0)
    assert not askers.others(7, 1.0)
    askers.asked(7, 1.0)
    assert askers.anybody(1.0)
    assert not askers.others(7, 1.0), "nobody but itself"
    assert askers.others(8, 1.0)
    askers.asked(8, 1.1)
    assert askers.others(7, 1.1)
    assert askers.others(8, 1.1)
    for now in (1.2, 1.3):
        askers.asked(8, now)
    assert not askers.others(8, 1.0 + limits.ASKED_SECONDS)
    assert askers.others(7, 1.2 + limits.ASKED_SECONDS)
    assert not askers.others(7, 1.3 + limits.ASKED_SECONDS)
    assert not askers.anybody(1.3 + limits.ASKED_SECONDS)


def test_who_has_no_name_is_always_somebody_else() -> None:
    askers = RecentAskers[int]()
    askers.asked(None, 1.0)
    askers.asked(None, 1.1)
    askers.asked(7, 1.2)
    assert askers.others(7, 1.2)
    assert not askers.others(7, 1.1 + limits.ASKED_SECONDS)
