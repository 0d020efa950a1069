"""Runs a command: parses the command line, calls its module, turns errors into exit codes.

Owns: which module runs a command, and what an error looks like to a person: one line on stderr.
Refuses: the grammar (`arguments.py`) and the commands themselves.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from walld_client.errors import WalldError as ClientError

from walld.cli.arguments import parse
from walld.cli.exit_codes import (
    CANNOT,
    INTERRUPTED,
    NO_INPUT,
    NOT_UNDERSTOOD,
    USAGE,
    complain,
)
from walld.errors import ConfigError, NotUnderstood, WalldError

__all__ = ["run"]

_HAS_NO_INPUT = ("audit", "explain", "fsck", "resume-check", "salvage")
"""Where that a thing cannot be looked at has a code of its own: of most, 1 says something of it."""

MODULES: Final = {
    "audit": "query.audit",
    "config": "config",
    "demo": "demo",
    "dump": "inspect.dump",
    "explain": "query.explain",
    "fsck": "inspect.fsck",
    "ls": "query.ls",
    "recover": "query.recover",
    "repair-plan": "query.repair_plan",
    "resolve": "query.resolve",
    "resume-check": "query.resume_check",
    "run": "run_program",
    "salvage": "inspect.salvage",
    "selftest": "selftest.command",
    "serve": "serve",
    "session": "session.commands",
    "session ls": "session.ls_sessions",
    "status": "query.status",
}
"""Command, with its verb where that has one of its own -> its module below `walld.cli`; only that
one is imported.
"""


def run(argv: Sequence[str] | None) -> int:
    """Parse, run, and turn what is raised into an exit code."""
    _hold_descriptors()
    if not __debug__:
        complain(
            "python -O takes out the checks that stop walld before it writes nonsense; not run"
        )
        return CANNOT
    try:
        options = parse(argv)
    except SystemExit as exit_:  # argparse: --help is 0, wrong usage is 64
        return exit_.code if isinstance(exit_.code, int) else USAGE
    cannot = NO_INPUT if options.command in _HAS_NO_INPUT else CANNOT
    # A terminal that cannot show a character gets its escape instead of a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None and options.command not in ("serve", "run"):
        # `recover --resolve >&-` would remove what nobody has seen.
        complain("standard output is closed: nothing can be printed; not run")
        return cannot
    try:
        with_verb = f"{options.command} {getattr(options, 'verb', '')}"
        name = MODULES.get(with_verb, MODULES[options.command])
        command = importlib.import_module(f"walld.cli.{name}")
        code: int = command.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `walld dump | head`; what is left has no reader
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return cannot
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except NotUnderstood as error:
        complain(str(error))
        return NOT_UNDERSTOOD
    except (WalldError, ClientError, OSError) as error:
        complain(str(error))
        return cannot
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # Python would exit 1, which of some says what they found
        _own_fault(error, is_daemon=options.command == "serve")
        return cannot
    return code


def _hold_descriptors() -> None:
    """Of 0 to 2 those that were closed lead nowhere: what is opened next would get their numbers,
    and whatever is written to stderr below Python would go into a file of the data directory.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


def _own_fault(error: Exception, *, is_daemon: bool) -> None:
    """What no command expects: a line with its place; of a daemon the whole trace in its log."""
    if is_daemon:
        import logging

        logging.getLogger("walld").critical("a bug ended it", exc_info=error)
        return
    if isinstance(error, MemoryError):
        complain("there is not enough memory")
        return
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename}, line {at.tb_lineno}" if at is not None else "?"
    complain(f"a bug of walld, please report it: {type(error).__name__}: {error} ({where})")
