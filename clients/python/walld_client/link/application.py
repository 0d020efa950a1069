"""Names the application that a process is, so that one of a user's takes no other's replies.

Owns: the name where the program gives none. Refuses: who sees what of it (`client.py`).

What is named must be the same for the next process of the same program, and another for another
program of the same user: so it is the main program's path. Where that is a launcher the path says
nothing of what it runs, but the working directory does.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from walld_client.ids import checked_id
from walld_client.limits import ID_BYTES_MAX

__all__ = ["EVERY", "application"]

EVERY: Final = "*"
"""For who sees the replies of all applications; its own are the main program's."""
_SERVERS: Final = frozenset(
    ("celery", "daphne", "flask", "granian", "gunicorn", "hypercorn", "uvicorn", "uwsgi")
)
_LAUNCHERS: Final = _SERVERS | {"ipython", "ipykernel_launcher", "pytest", "-c", "-", ""}
_log = logging.getLogger("walld")
_said: set[str] = set()


def application(given: str | None) -> tuple[str, bool]:
    """(whose the replies of this process are, whether it sees those of all).

    given: by the program; else WALLD_APP, else it is found out. Raises ValueError, TypeError.
    """
    name = given if given is not None else os.environ.get("WALLD_APP") or None
    if name is None or name == EVERY:
        return _main_program(), name == EVERY
    return checked_id(name, "app"), False


def _main_program() -> str:
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:  # a shell, `-c`, `-`; or a program that has Python within it
        path = sys.argv[0] if getattr(sys, "argv", None) else ""
        return _launched(os.path.basename(path))
    path = os.path.abspath(path)
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "__main__":  # `python -m NAME`
        name = os.path.basename(os.path.dirname(path))
    return _launched(name) if name in _LAUNCHERS else _fitting(path)


def _launched(launcher: str) -> str:
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        folder = "?"
    name = _fitting(f"{launcher or 'python'} in {folder}")
    if launcher in _SERVERS and name not in _said:
        _said.add(name)
        _log.warning(
            "the replies of this process are those of the application %r: another one that %s runs "
            "there would take them for its own; name it: connect(app=...) or WALLD_APP",
            name,
            launcher,
        )
    return name


def _fitting(name: str) -> str:
    """At most what an id may have: the end of it says more than the beginning."""
    raw = name.encode("utf-8", "replace")
    return raw[-ID_BYTES_MAX:].decode("utf-8", "ignore") or "python"
