"""A durable loop that is killed anywhere does nothing twice, and answers in the end.

Every pair of choices is tried at each run. `make durable` tries each step with each effect,
policy, provider's format and way of booking, 4,680 loops; `LOOPS=3/12` a twelfth of that.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from crash.durable.cases import STEPS, every_pair, everything
from crash.durable.trial import Trial
from daemon_process import DaemonProcess

AT_ONCE = 8
_CHOSEN = os.environ.get("WALLD_DURABLE", "")


def _cases() -> list[dict[str, object]]:
    if not _CHOSEN:
        return every_pair()
    if _CHOSEN == "all":
        return list(everything())
    part, parts = map(int, _CHOSEN.split("/"))
    return list(itertools.islice(everything(), part - 1, None, parts))


CASES = _cases()


@pytest.mark.parametrize("first", range(0, len(CASES), AT_ONCE))
def test_no_effect_is_repeated_and_the_loop_answers(
    daemon: DaemonProcess, tmp_path: Path, first: int
) -> None:
    for number, case in enumerate(CASES[first : first + AT_ONCE], first):
        try:
            Trial(daemon, tmp_path / f"case{number}", f"case {number}", case).run()
        except AssertionError as error:
            raise AssertionError(f"case {number}, {case}: {error}") from error


@pytest.mark.parametrize("booking", STEPS)
def test_a_model_that_does_not_look_is_found(
    daemon: DaemonProcess, tmp_path: Path, booking: str
) -> None:
    """What a trial finds: an effect that is repeated, of a call that everybody knows is done."""
    case = {"booking": booking, "step": "effect", "again": None, "effect": "external-write"}
    case |= {"policy": "rerun-after-check", "format": "openai", "answer": "look"}
    case |= {"promises": False, "idempotency": "unsafe", "runs_directly": False}
    with pytest.raises(AssertionError, match="done 2 times, 1 allowed"):
        Trial(daemon, tmp_path / "case", "case", case, reads=False).run()
