"""`python -m walld`: the same as the `walld` command."""

from __future__ import annotations

import sys

from walld.cli import main

if __name__ == "__main__":
    sys.exit(main())
