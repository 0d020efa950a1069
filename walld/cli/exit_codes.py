"""Exit codes of all commands, and how an error looks to a person: one line on stderr.

Owns: both. Refuses: which command ends with which code.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from walld.escape import escaped_line

__all__ = [
    "CANNOT",
    "CHECK",
    "DONE",
    "INTERRUPTED",
    "NOTHING",
    "NOT_UNDERSTOOD",
    "NO_INPUT",
    "USAGE",
    "complain",
]

DONE = 0
CANNOT = 1
NOTHING = 3
CHECK = 4
"""Of the gate: look first."""
USAGE = 64
NOT_UNDERSTOOD = 65
"""`EX_DATAERR` of sysexits(3): of `session import`, there is no session in the file."""
NO_INPUT = 66
"""`EX_NOINPUT` of sysexits(3)."""
INTERRUPTED = 130


def complain(message: str) -> None:
    """One line on stderr, where there is one: not into what a program reads from stdout."""
    if sys.stderr is not None:
        with suppress(OSError):  # nobody reads it: the exit code still says what it says
            print(f"walld: {escaped_line(message)}", file=sys.stderr)
