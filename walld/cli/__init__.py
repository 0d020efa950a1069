"""What a person types. One file a command; `arguments.py` has the grammar.

Owns: options, exit codes, what is printed. Refuses: deciding anything about a reply.

Exit codes: 0 done, 1 it cannot be done or known, 3 nothing to recover (proven), 64 wrong usage or a
bad setting, 130 interrupted. Of `fsck`: 1 torn, 2 corrupt; of `salvage`: 1 something was lost, 2
nothing could be taken; of both: 66 there is no such directory, it cannot be read, nothing can be
printed, or walld itself failed.

Commands are imported when they are run: `walld status` starts without what `walld serve` needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point: runs one command and returns its exit code."""
    if argv is None and sys.argv[1:2] == ["serve"]:
        # First of all: the imports take a while, and a stray SIGUSR1 would end it meanwhile.
        from walld.daemon.signals import hold_meaningless

        hold_meaningless()
    from walld.cli.entry_point import run

    return run(argv)
