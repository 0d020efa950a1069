"""How far a run is, on stderr.

Owns: one line that is rewritten on a terminal, and one line a question elsewhere. Refuses: threads,
which would disturb what is measured: it moves when a question says where it is.
"""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]

_WIDTH = 28


class Progress:
    """The bar over all questions of a run, each as wide as the seconds it was thought to take."""

    def __init__(self, expected: dict[str, float]) -> None:
        self._expected = expected
        self._all = sum(expected.values())
        self._before = 0.0
        self._name = ""
        self._begun = time.monotonic()
        self._live = sys.stderr.isatty()

    def begin(self, name: str) -> None:
        """A question is next."""
        self._name = name
        self.step(0.0, "")
        if not self._live:
            print(f"bench: {name} (about {self._expected[name]:.0f} s)", file=sys.stderr)

    def step(self, share: float, what: str) -> None:
        """The question at hand has come so far (0 to 1) and is at `what`."""
        if not self._live:
            return
        done = (self._before + self._expected[self._name] * min(share, 1.0)) / self._all
        filled = int(done * _WIDTH)
        bar = "#" * filled + "-" * (_WIDTH - filled)
        took = time.monotonic() - self._begun
        text = f"[{bar}] {done:4.0%} {took:4.0f} s  {self._name}: {what}"
        print(f"\r\x1b[2K{text[:110]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The question at hand is answered."""
        self._before += self._expected[self._name]
        self.step(0.0, "")

    def close(self) -> None:
        """The line is the terminal's again."""
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
