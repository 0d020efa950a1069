"""walld explain: what happened in a session, what is open, what to do now.

Exit codes: 0 it is explained, whatever it says; 3 nothing is kept under that id; 66 cannot
ask, or no such directory. Owns: asking, and what only the one who types knows of the commands: the
socket, the workspace, the daemon's directory. Refuses: the answer (`views/explanation.py`),
drawing it (`explain_page.py`).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from itertools import pairwise
from typing import Any, Final

import msgspec
from walld_client.session.session_steps import SessionSteps
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.exit_codes import DONE, NO_INPUT, complain
from walld.cli.query.explain_page import render_explanation
from walld.cli.session_client import SessionClient, nothing_kept
from walld.cli.show import as_json, has_colour
from walld.sessions.gate.next_steps import DATA, DIR

__all__ = ["run"]

_OFFLINE: Final = ("walld fsck ", "walld session repair ")
"""Commands that ask no daemon."""
_OF_ITS_USER: Final = ("walld session settle ", "walld session adopt ")
"""What is appended is always one's own: root does it as that user."""


def run(options: argparse.Namespace) -> int:
    """Print the answer to the four questions."""
    if options.workspace is not None and not os.path.isdir(options.workspace):
        complain(f"there is no directory {options.workspace}: nothing to compare with")
        return NO_INPUT
    with Daemon(options.socket, options.timeout) as daemon:
        asking = SessionClient(daemon, options.uid)
        session = SessionSteps(options.session, None, lambda _: [], None)
        told = asking.run(session.explain(options.workspace))
        if told is None:
            return nothing_kept(options.session)
        _complete(told["may"], options, daemon)
    if options.json:
        print(as_json(told))
    else:
        width = shutil.get_terminal_size().columns
        print(render_explanation(told, width=width, colour=has_colour()))
    return DONE


def _complete(rows: list[dict[str, Any]], options: argparse.Namespace, daemon: Daemon) -> None:
    """Make each command one that can be typed as it is."""
    if options.workspace is not None:
        here = repr(options.workspace)
        for row in rows:
            if row["python"] is not None:
                told = row["python"].replace(f"workspace={DIR!r}", f"workspace={here}")
                row["python"] = told.replace(f"_workspace({DIR!r})", f"_workspace({here})")
    typed = [one for row in rows for one in row["commands"]]
    data = _data_of(daemon) if any(one["command"].startswith(_OFFLINE) for one in typed) else None
    values = {"--workspace": options.workspace, "--data": data}
    for one in typed:
        words = shlex.split(one["command"])
        ids_at = words.index("--") if "--" in words else len(words)
        for at, (before, word) in enumerate(pairwise(words[:ids_at]), 1):
            if (before, word) in (("--workspace", DIR), ("--data", DATA)):
                words[at] = values[before] or word
        if words == ["walld", "fsck", DATA]:
            words[2] = data or DATA
        more: list[str] = []
        if options.uid is not None and one["command"].startswith(_OF_ITS_USER):
            one["what"] += f", as user {options.uid}"
        elif options.uid is not None and not one["command"].startswith(_OFFLINE):
            more += ["--uid", str(options.uid)]
        if options.socket is not None and not one["command"].startswith(_OFFLINE):
            more += ["--socket", options.socket]
        one["command"] = " ".join(map(_typed, [*words[:ids_at], *more, *words[ids_at:]]))


def _typed(word: str) -> str:
    """As a shell takes it: what no terminal shows as it is stands in $'...'."""
    if word.isprintable():
        return shlex.quote(word)
    told = [
        f"\\{one}"
        if one in "\\'"
        else one
        if one.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogatepass"))
        for one in word
    ]
    return f"$'{''.join(told)}'"


def _data_of(daemon: Daemon) -> str | None:
    """The daemon's directory, where it tells."""
    status = msgspec.msgpack.decode(daemon.ask(wire.Status(daemon.next_id())), type=dict[str, Any])
    data = status.get("data")
    return data if isinstance(data, str) else None
