"""What all loops share: the command line, a folder a cycle, the rate, the last line.

Owns: seeds, counting, keeping what is left of a cycle that failed, reading a directory offline.
Refuses: what a cycle does.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import walld_client
from walld_client.recovered.partial import from_recovered

from walld.cli.inspect.offline import find

from .judge import Counts, WrongError
from .spoiled import SPOILED

__all__ = ["Loop", "Tally", "kept_offline", "options"]

_HARMLESS = "(segment header)"
"""A segment whose making was cut held nothing yet: what `find` doubts is only that."""


@dataclass
class Tally:
    """Of one loop. kinds: how often each thing was done."""

    counts: Counts = field(default_factory=Counts)
    kinds: dict[str, int] = field(default_factory=dict)

    def did(self, kind: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def __str__(self) -> str:
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        counts = self.counts
        return (
            f"{done}; {counts.replies} replies and {counts.events} events compared, "
            f"{counts.acknowledged} of them acknowledged, {counts.released} releases held; "
            f"{counts.gaps} gaps, {counts.unacknowledged_lost} events lost that nobody was promised"
        )


def options(name: str, arguments: Sequence[str] | None, count: int) -> argparse.Namespace:
    """--count, --seed, --full, --spoil."""
    parser = argparse.ArgumentParser(prog=f"kernel.{name}")
    parser.add_argument("--count", type=int, default=count, help="cycles")
    parser.add_argument("--seed", type=int, default=1, help="of the first cycle")
    # Also `kill` and `timeout` leave no mount behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser.add_argument("--full", action="store_true", help="daemons that are not forked")
    parser.add_argument("--kind", default="", help="of several kinds those with it in their name")
    parser.add_argument("--spoil", choices=SPOILED, default="", help="daemons that are wrong")
    return parser.parse_args(arguments)


class Loop:
    """Runs cycles; says how they went."""

    def __init__(self, name: str, cycles_of_a_seed: int = 1) -> None:
        self.name = name
        self.cycles_of_a_seed = cycles_of_a_seed
        self.tally = Tally()
        self.failed = 0
        self._begun = time.monotonic()

    def cycle(self, seed: int, run: Callable[[Path], None]) -> bool:
        """One cycle, in a folder of its own. False where it failed: it is kept then."""
        folder = Path(tempfile.mkdtemp(prefix=f"walld-{self.name}-{seed}-"))
        try:
            run(folder)
        except (AssertionError, OSError) as error:
            self.failed += 1
            kind = "" if isinstance(error, WrongError) else f"{type(error).__name__}: "
            print(f"FAILED {self.name} seed {seed}: {kind}{error}", file=sys.stderr)
            traceback.print_exc(limit=-3)
            again = f"--seed {seed} --count {self.cycles_of_a_seed}"
            print(f"kept: {folder}; again: {again}", file=sys.stderr, flush=True)
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True

    def end(self, cycles: int) -> int:
        """The last line; the exit code."""
        seconds = time.monotonic() - self._begun
        rate = cycles / seconds if seconds else 0.0
        word = f"{self.failed} FAILED" if self.failed else "nothing promised was lost"
        print(f"{self.name}: {cycles} cycles in {seconds:.0f} s ({rate:.1f}/s): {word}")
        print(f"  {self.tally}", flush=True)
        return 1 if self.failed else 0


def kept_offline(data: Path) -> list[walld_client.PartialReply]:
    """What the directory alone tells, as `walld recover --data` reads it.

    WrongError where anything is called damaged: nothing but a crash has happened to it.
    """
    found = find(str(data))
    doubts = [
        doubt
        for doubt in found.doubts
        if not (doubt.startswith("torn: ") and doubt.endswith(_HARMLESS))
    ]
    if doubts:
        raise WrongError(f"a crash is called damage: {doubts}")
    return [from_recovered(reply) for reply in found.replies]
