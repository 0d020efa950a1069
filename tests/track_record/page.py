"""`walld/TRACK_RECORD.md`, made of the rows.

Owns: what is added up, and what is said of how far that goes. Refuses: a figure typed by hand, but
in the words about limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from track_record.rows import COUNTED, KINDS, ROOT, WAYS, Bug, Goal, Run, bugs, goals, runs

__all__ = ["PAGE", "made"]

PAGE = ROOT / "walld/TRACK_RECORD.md"

_HEAD = """\
# Track record

What has been run against walld, and every bug that was found in it; `PYTHONPATH=tests python -m
track_record` makes this page of two files.
[track_record_bugs.csv](../docs/data/track_record_bugs.csv) has each bug, what found it and the
test that holds it now: a bug that is found gets a row.
[track_record_runs.csv](../docs/data/track_record_runs.csv) has each run: its command, commit, how
much of it, what failed. A run that is counted was run; its row is never edited. Two shared cores
unless it says something else. The commits from `703a8fa` to `bdf4445` were published as
`295fb0e`.
"""

_LIMITS = """\
## What limits these figures

- Time on a machine: two cores do 7 to 25 simulated worlds a second. At 25 those that are missing
  take 110 hours.
- A row says nothing of later commits. Sums have shares that were repeated: each `.ci/run` has
  the same inputs of fuzz.
- `.ci/run` has less of each than was aimed at for 20 minutes of two cores: 8 % of the loops on
  the real kernel, 356,000 of 5,000,000 executions of fuzz, 13,900 of 20,000 crashes in
  simulation when they were last compared
  ([track_record_goals.csv](../docs/data/track_record_goals.csv)).
- The planted bugs are ours, as is what finds them. Of the first 25 (in the order of `make zoo`)
  the first 30 worlds find 14 where no crash states are looked at, and 20 where they are (the
  tree of `43b6977`); two of all that no world meets are known by unit tests.
- How a bug was found is sorted by the words of its row. Few rows name somebody who has no part
  in walld.
- Power cuts are of ext4 and xfs; 200 kills at a call each are of xfs and btrfs, the others of
  ext4.
"""


def made() -> str:
    """All of the page."""
    found, ran, aims = bugs(), runs(), goals()
    parts = [
        _HEAD,
        f"## Bugs: {len(found):,}, by how they were found\n",
        _by_way(found),
        f"## Runs: {len(ran):,}, by kind\n",
        _by_kind(ran),
        "## What they add up to\n",
        _added_up(ran, aims),
        _LIMITS,
    ]
    return "\n".join(parts)


def _by_way(found: Sequence[Bug]) -> str:
    counts = Counter(bug.way for bug in found)
    rows = [
        [way, WAYS[way], f"{count:,}", f"{100 * count / len(found):.0f} %"]
        for way, count in counts.most_common()
    ]
    return _table(("found by", "that is", "bugs", "share"), rows)


def _by_kind(ran: Sequence[Run]) -> str:
    """A row whose runs are of several kinds is of the first; its counts are all added up."""
    rows = []
    for kind in KINDS:
        of = [run for run in ran if run.kind == kind]
        rows.append([kind, str(len(of)), f"{sum(int(run.broken) for run in of):,}", of[-1].commit])
    return _table(("kind", "rows", "runs that broke a promise", "the last at"), rows)


def _added_up(ran: Sequence[Run], aims: Sequence[Goal]) -> str:
    sums = Counter[str]()
    for run in ran:
        sums.update(run.counted())
        if "planted" in run.counted():
            sums["planted"] = run.counted()["planted"]
    aim_of = {name: aim for goal in aims for name, aim in goal.aimed().items()}
    rows = [[what, f"{sums[name]:,}", aim_of.get(name, "")] for name, what in COUNTED.items()]
    return _table(("what", "how many", "aimed at"), rows)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
