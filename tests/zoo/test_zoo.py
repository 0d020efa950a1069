"""The planted bugs fit today's code, and some are found here; `make zoo` is for all of them.

Not in the list, for the simulation cannot tell them from the right code:

- A segment goes without waiting for the sync of the tombstones in it. Strictly oldest first, what
  they bury is gone before them, and the records that died have their number already.
- Zeros are taken for the end of the log. Only rot makes zeros in front of what was synced, and
  where damage is said the oracle lets things be missing; `unit/wal/test_scan.py` has it.
- A carried record does not say that its end is in it. The oracle does not compare how a reply
  ended with how it is said to have ended.
- The tombstone of a turn's reply does not wait for its messages; lines of a session go to its file
  before the log is synced; a start chains on wrongly where the snapshot knows the lines; a turn's
  reply is taken again while its tombstone is on its way, or when a part of it is held no more; a
  process that only asks is not watched: not met in the plans below.
- A partial outlives a reply that was resolved while it was made: met by no plan of the first 1,600.
- LOCK names a batch of a segment that is bare; a sync begins beside one that the writer has begun.
  No world takes a segment away, and its disk has no threads; `unit/daemon/storage/test_syncer.py`
  has both.
- What goes first takes the place of who waits for a flush: the oracle goes by acks, which say what
  a stream has; `virtual_time/test_flushing.py` has it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from walld.disk.medium import PROFILES

from . import cage
from .__main__ import main
from .mutants import MUTANTS, Mutant

QUICK = (
    "silence for three seconds is taken for death",
    "tokens join a run of reasoning",
    "one user is shown what is another's",
)
"""Some that are found fast."""
QUICK_PLANS = 3
PROMISES = "".join(
    (cage.ROOT / page).read_text()
    for page in ("walld/ARCHITECTURE.md", "docs/invariants.md", "docs/simulation.md")
)


def chosen(name: str) -> Mutant:
    (found,) = [mutant for mutant in MUTANTS if mutant.name == name]
    return found


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_fits_in_one_place(mutant: Mutant) -> None:
    text = cage.patched(mutant)
    assert text != (cage.ROOT / mutant.path).read_text()
    compile(text, mutant.path, "exec")
    # What the simulation judges has no row of a table: its numbers stand in the page's prose.
    row = rf"\b{mutant.promise}\b" if mutant.promise[:3] == "SIM" else rf"^\| {mutant.promise} \|"
    assert re.search(row, PROMISES, re.MULTILINE), "no such promise"


def test_there_are_many_and_no_two_are_one() -> None:
    assert len(MUTANTS) >= 40
    names = Counter(mutant.name for mutant in MUTANTS)
    bugs = Counter((mutant.path, mutant.old, mutant.new) for mutant in MUTANTS)
    assert max(names.values()) == max(bugs.values()) == 1


@pytest.mark.parametrize("name", QUICK[1:])
def test_a_bug_is_found(tmp_path: Path, name: str) -> None:
    cage.make_copy(tmp_path, chosen(name))
    fate = cage.run(tmp_path, (chosen(name).plan,), seeds=0, last=QUICK_PLANS)
    assert (fate.plan, fate.tried) == (chosen(name).plan, 1), fate
    assert fate.why


def test_where_its_own_plan_does_not_find_it_those_of_others_may(tmp_path: Path) -> None:
    cage.make_copy(tmp_path, chosen(QUICK[1]))
    at_once = f"{next(iter(PROFILES))}:1:kill"  # before anything was said
    fate = cage.run(tmp_path, (at_once,), seeds=0, last=1 + QUICK_PLANS)
    assert fate.plan in cage.FIRST[:QUICK_PLANS], fate


def test_the_tree_without_a_bug_passes_the_same_plans(tmp_path: Path) -> None:
    cage.make_copy(tmp_path, None)
    fate = cage.run(tmp_path, (), seeds=0, last=QUICK_PLANS)
    assert (fate.plan, fate.tried) == (None, QUICK_PLANS), fate


def test_it_is_the_copy_that_is_run(tmp_path: Path) -> None:
    """In either package; and what does not even run has proven nothing."""
    for path in ("walld/__init__.py", "clients/python/walld_client/__init__.py"):
        text = (cage.ROOT / path).read_text()
        broken = Mutant("", path, text, f"raise SystemExit({path!r})\n", "", "0")
        folder = tmp_path / path.replace("/", "-")
        cage.make_copy(folder, broken)
        with pytest.raises(RuntimeError, match=path):
            cage.run(folder, (), seeds=0, last=1)


def test_a_patch_that_lacks_a_name_proves_nothing(tmp_path: Path) -> None:
    old = "            own = self._sync_of(engine.batches.written_no)\n"
    new = "            nobody()\n"
    cage.make_copy(tmp_path, Mutant("", "walld/daemon/storage/syncer.py", old, new, "", "0"))
    with pytest.raises(RuntimeError, match="NameError"):
        cage.run(tmp_path, (), seeds=0, last=1)


def test_a_bug_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"(?:[2-9]|[0-9]{2}) times"):
        cage.patched(Mutant("", "walld/errors.py", "class ", "", "", "0"))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", QUICK[0], "--jobs", "1"]) == 0
    line, last = capsys.readouterr().out.splitlines()
    assert re.match(rf"{QUICK[0]} +L2 +killed by \d+ ", line)
    assert last.startswith("1 of 1 planted bugs found by 1 plans")


def test_a_bug_that_survives_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", QUICK[0], "--plans", "0"]) == 1
    assert f"survived: {QUICK[0]}\n" in capsys.readouterr().out
