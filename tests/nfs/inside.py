"""`python3 -m nfs.inside`: in the guest, as its only task: the server, then each scenario.

Owns: their order, a limit of time for each, a verdict a scenario on the serial line. Refuses: what
they do.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from .exports import serve
from .machine import MARK
from .scenarios import (
    beside,
    failing,
    full,
    killed,
    outage,
    quiet,
    removed,
    second,
    takeover,
    tried,
)

__all__ = ["main"]

_SCENARIOS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "quiet": partial(quiet.run, "quiet", "vers=4.2,hard"),
    "quiet-v3": partial(quiet.run, "quiet-v3", "vers=3,hard,nolock"),
    "beside": beside.run,
    "outage": outage.run,
    "full": full.run,
    "failing": failing.run,
    "second": second.run,
    "takeover": takeover.run,
    "removed": removed.run,
    "killed": killed.run,
    "selftest": tried.run,
}
_SECONDS_MAX: Final = 420


class _TooLong(BaseException):
    """A scenario does not come to its end."""


def _alarm(*_: Any) -> None:
    raise _TooLong


def main() -> int:
    """All that the kernel's command line names."""
    found = re.search(r"walld\.only=(\S+)", Path("/proc/cmdline").read_text())
    names = found[1].split(",") if found else list(_SCENARIOS)
    signal.signal(signal.SIGALRM, _alarm)
    serve()
    for name in names:
        print(f"{name} begins", flush=True)
        begun = time.monotonic()
        figures: list[str] = []
        wrong: str | None = None
        try:
            signal.alarm(_SECONDS_MAX)
            figures = _SCENARIOS[name]()
        except _TooLong:
            wrong = f"not over after {_SECONDS_MAX} s"
            traceback.print_exc(limit=-3)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}".splitlines()[0]
            traceback.print_exc(limit=-3)
        finally:
            signal.alarm(0)
        figures.append(f"{time.monotonic() - begun:.0f} s in the guest")
        said = {"scenario": name, "wrong": wrong, "figures": figures}
        print(f"{MARK}{json.dumps(said)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
