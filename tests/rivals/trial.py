"""One trial: one store on one fresh folder, from its first start to reading all of it back.

Owns: order: who is started, that nobody is left, the fresh start at the end and its repair where
the store refuses. Refuses: the trouble in between (`faults.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from . import events
from .judge import Counts, judge
from .store import Found, RefusedError, Store
from .writing import Writing

__all__ = ["MakeStore", "Trial", "trial"]

MakeStore = Callable[[Path, Path], Store]
"""Of a folder for logs and sockets, and one for what must outlive the fault."""


class Trial:
    """See the top. home: logs and sockets. folder: what must outlive the fault."""

    def __init__(self, make: MakeStore, home: Path, folder: Path, random: Random) -> None:
        self.home = home
        self.folder = folder
        self.random = random
        self.store = make(home, folder)
        self.writers: list[Writing] = []
        self.revived = 0
        self.struck_at = 0.0

    def write(
        self,
        sizes: tuple[int, ...] = events.MIXED,
        *,
        waits: bool = False,
        pause_seconds: float = 0.0,
    ) -> Writing:
        """One more writer, with a stream of its own."""
        log = self.home / "writers.log"
        name = f"w{len(self.writers)}"
        one = Writing(self.store, name, log, sizes, waits=waits, pause_seconds=pause_seconds)
        self.writers.append(one)
        return one

    def revive(self, *, is_stuck: bool = False) -> None:
        """As whoever watches over a server does: it runs again, if it has ended by itself.

        is_stuck: it runs, and does nothing any more.
        """
        if self.store.has_server and (is_stuck or self.store.pid() is None):
            self.revived = 1
            self.store.kill()
            self.store.start()

    def struck(self) -> None:
        """Now, before the power goes: what is said later nobody would have been there to hear.

        A sync that is on its way at the shutdown of ext4 or xfs may say that it is done.
        """
        self.struck_at = time.monotonic()

    def kill_all(self) -> None:
        """Nobody is left."""
        self.store.kill()
        for writer in self.writers:
            writer.kill()

    def count(self) -> Counts:
        """Read everything and compare."""
        for writer in self.writers:
            writer.kill()
        refused = 0
        try:
            found = self.store.read()
        except RefusedError as error:
            refused = 1
            found = self._repaired()
            found.said.append(f"refused: {error}")
        notes = {writer.stream: writer.notes for writer in self.writers}
        counts = judge(notes, found, self.struck_at)
        counts.refused = refused
        counts.revived = self.revived
        with (self.home / "said.log").open("a") as log:
            print(counts, *found.said, sep="\n", file=log)
        return counts

    def _repaired(self) -> Found:
        self.store.kill()
        try:
            return self.store.read() if self.store.repair() else Found()
        except RefusedError:
            return Found()


@contextmanager
def trial(make: MakeStore, home: Path, folder: Path, random: Random) -> Iterator[Trial]:
    """Whatever happens inside, nobody is left running."""
    one = Trial(make, home, folder, random)
    try:
        yield one
    finally:
        one.kill_all()
