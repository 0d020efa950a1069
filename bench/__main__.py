"""`python -m bench [NAME...] [--quick]`: the command, and who supervises it."""

from __future__ import annotations

import sys

from bench.supervisor import supervised


def _work() -> int:
    from bench.command import main  # Ctrl-C is heard while all this is imported

    return main()


if __name__ == "__main__":
    sys.exit(supervised(_work))
