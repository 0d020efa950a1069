"""What every question is given: where to work, how thoroughly, and whom to tell.

Owns: the context of one run. Refuses: deciding anything for a question.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.daemon import Daemon
from bench.machine import Cores

__all__ = ["Run"]


@dataclass(slots=True)
class Run:
    """One run of the bench. quick: a rougher answer in a few seconds a question."""

    folder: Path
    cores: Cores
    quick: bool
    step: Callable[[float, str], None]
    _made: int = 0

    def pick(self, full: float, quick: float) -> float:
        """A number of seconds or rounds, by how thorough the run is."""
        return quick if self.quick else full

    def home(self) -> Path:
        """A new folder for a daemon; its path is short, sockets need that."""
        self._made += 1
        home = self.folder / str(self._made)
        home.mkdir(parents=True)
        return home

    @contextmanager
    def daemon(
        self, *options: str, program: str = "walld", files_max: int | None = None
    ) -> Iterator[Daemon]:
        """A fresh daemon, gone with its folder afterwards."""
        home = self.home()
        try:
            with Daemon(
                home, self.cores.daemon, *options, program=program, files_max=files_max
            ) as daemon:
                yield daemon
        finally:
            shutil.rmtree(home, ignore_errors=True)
