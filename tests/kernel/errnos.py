"""`python -m kernel.errnos`: each call that changes or reads the disk fails in each way.

    --count N    injections
    --seed S     of the first

No hang, no death but of a start that cannot use its directory, nothing acknowledged lost; what is
reported is what happened. EINTR comes as from a kernel that did nothing: Python tries again.

write(2) is not among them: no file is written by it, only the wake-ups of the event loop. Nor is
fstat(2): sockets, pidfds and the modules that Python imports are looked at by the same call, where
no disk fails it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import Final

from .traced import Fault, command

__all__ = ["faults", "main"]

_ERRORS: Final = ("EIO", "ENOSPC", "EDQUOT", "EINTR", "ESTALE", "EROFS")
_CALLS: Final = {
    "pwrite64": (28, _ERRORS),
    "fdatasync": (12, _ERRORS),
    "fsync": (16, _ERRORS),
    "openat": (36, (*_ERRORS[:1], "ENOSPC", "EDQUOT", "EINTR", "ESTALE", "EROFS", "EMFILE")),
    "unlinkat": (8, ("EIO", "ESTALE", "EROFS", "EINTR")),
    "renameat": (3, ("EIO", "ENOSPC", "EDQUOT", "ESTALE", "EROFS")),
    "mkdirat": (5, ("EIO", "ENOSPC", "EDQUOT", "ESTALE", "EROFS")),
    "pread64": (48, ("EIO", "ESTALE")),
    "getdents64": (40, ("EIO", "ESTALE")),
}
"""How many of each a history makes, about, and how each can fail."""


def faults() -> list[Fault]:
    """All of them, in an order in which any number is a fair share."""
    found = []
    for call, (times, errors) in _CALLS.items():
        for error in errors:
            for at in range(1, times + 1):
                found.append(Fault((f"{call}:error={error}:when={at}",)))
                if at % 3 == 0:
                    found.append(Fault((f"{call}:error={error}:when={at}..{at + 4}",)))
    for at in range(1, _CALLS["pwrite64"][0] + 1):
        # A file that is full and cannot be cut; a write that took nothing and says so.
        full = f"pwrite64:error=ENOSPC:when={at}..{at + 1}"
        found += [Fault((full, f"ftruncate:error={error}:when=1")) for error in ("EIO", "ESTALE")]
        found.append(Fault((f"pwrite64:retval=0:when={at}",)))
    Random("faults").shuffle(found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    return command("errnos", faults(), arguments, 1000)


if __name__ == "__main__":
    sys.exit(main())
