"""The grammar of `walld session`, `audit`, `repair-plan`, `explain`, `resume-check`.

Owns: these commands, their options and help. Refuses: the rest of the command line
(`arguments.py`).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EXPORT_FORMATS", "IMPORT_FORMATS", "add_session_commands"]

IMPORT_FORMATS = ("auto", "pi", "gptme", "claude", "codex", "walld")
EXPORT_FORMATS = ("jsonl", "plain", "openai", "anthropic", "otel")
_VIEWS = {
    "show": "Print a session: turns, tools with outcome and duration, what was said.",
    "tree": "Draw its branches.",
    "state": "Print what it has come to: turns, settings, counts.",
    "trace": "Print its turns and tools as spans.",
}


def add_session_commands(
    add: Callable[[str, str], argparse.ArgumentParser],
    common: Callable[[argparse.ArgumentParser, bool], None],
    prefix: Callable[[str], str],
    ident: Callable[[str], str],
    seq: Callable[[str], int],
    uid: Callable[[str], int],
) -> None:
    """add: makes a command. common: gives one what all that ask a daemon have, --json, and --uid
    where it only reads or deletes: what is appended is always one's own.
    """
    session = add("session", "Look at sessions, fork, import, export, delete them.")
    verbs = session.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=text, allow_abbrev=False)

    def of_one(name: str, text: str, *, appends: bool = False) -> argparse.ArgumentParser:
        made = verb(name, text)
        made.add_argument("session", type=ident, help="session id")
        common(made, not appends)
        return made

    ls = verb("ls", "List the sessions that were ever written.")
    ls.add_argument("prefix", nargs="?", default="", type=prefix, help="only ids beginning so")
    ls.add_argument("--needs", action="store_true", help="only cut, blocked, waits: needs somebody")
    common(ls, True)
    for name, text in _VIEWS.items():
        of_one(name, text)
    events = of_one("events", "Print its events as they are kept, one JSON line each.")
    events.add_argument("--after", metavar="N", type=seq, default=0, help="only seqs above N")
    messages = of_one("messages", "Print its messages.")
    messages.add_argument("--format", choices=("plain", "openai", "anthropic"), default="plain")
    messages.add_argument("--branch", metavar="ID", type=ident, help="up to this entry")
    messages.add_argument("--whole", action="store_true", help="as if nothing were compacted")
    told = "leave out calls of which nobody knows whether they ran (say: tell so)"
    messages.add_argument("--unknown", choices=("say", "drop"), default="say", help=told)
    fork = of_one("fork", "Begin a new session from a path of this one.", appends=True)
    fork.add_argument("new", type=ident, help="id of the new session")
    told = "up to this entry (the leaf); '' is before the first"
    fork.add_argument("--at", metavar="ID", type=prefix, help=told)
    fork.add_argument("--whole", action="store_true", help="all branches")
    export = of_one("export", "Print it for another program.")
    export.add_argument("--format", choices=EXPORT_FORMATS, default="jsonl")
    told = "Move a session that nobody works on into one compressed file; import brings it back."
    archive = verb("archive", told)
    archive.add_argument("session", nargs="?", type=ident, help="session id")
    told = "all whose last event is older, by the clock of day: 12h, 30d"
    archive.add_argument("--older-than", metavar="AGE", type=_duration, help=told)
    archive.add_argument("--to", metavar="DIR", default=".", help="where the file goes (here)")
    common(archive, True)
    take = verb("import", "Append a session file to a session; again only adds what is new.")
    take.add_argument("file", metavar="FILE", help="JSONL file, or an archive")
    take.add_argument("--format", choices=IMPORT_FORMATS, default="auto")
    told = "take what the conversation began with from files beside it, where it names them"
    take.add_argument("--follow", action="store_true", help=told)
    told = "new or not (an archive: the session that it is of)"
    take.add_argument("--session", metavar="ID", type=ident, help=told)
    common(take, False)
    compact = of_one("compact", "Say what the beginning of it comes down to.", appends=True)
    compact.add_argument("--summary", metavar="TEXT", required=True)
    compact.add_argument("--first-kept", metavar="ID", type=ident, required=True)
    settle = of_one("settle", "Say what became of a call, or whether it may run.", appends=True)
    settle.add_argument(
        "call", metavar="CALL", type=ident, help="call id, as resume-check names it"
    )
    words = settle.add_mutually_exclusive_group(required=True)
    words.add_argument("--ran", dest="word", action="store_const", const="ran", help="it ran")
    words.add_argument(
        "--did-not-run", dest="word", action="store_const", const="did_not_run", help="it did not"
    )
    words.add_argument(
        "--grant", dest="word", action="store_const", const="granted", help="it may run, again too"
    )
    words.add_argument(
        "--deny", dest="word", action="store_const", const="denied", help="it may not run"
    )
    settle.add_argument("--result", metavar="FILE", help="what it gave (- is stdin), with --ran")
    settle.add_argument(
        "--for", dest="for_seconds", metavar="TIME", type=_duration, help="of --grant: 90s, 15m, 1h"
    )
    settle.add_argument("--note", metavar="TEXT", help="why; the model sees it of a denied call")
    settle.add_argument("--by", metavar="NAME", help="who says it")
    settle.add_argument("--turn", metavar="ID", type=ident, help="of the call, where several fit")
    settle.add_argument(
        "--stream", metavar="ID", type=ident, help="its reply, where it has no turn"
    )
    told = "the n-th call of that id, as resume-check counts them"
    settle.add_argument("--n", metavar="N", type=seq, help=told)
    settle.add_argument("--force", action="store_true", help="though a living process is at work")
    adopt = of_one("adopt", "Make messages of what a process that is gone had said.", appends=True)
    told = "of that application and of none ($WALLD_APP; where neither is said, or '*': of all)"
    adopt.add_argument("--app", metavar="NAME", help=told)
    told = "that reply alone, whosever it is (all of the session)"
    adopt.add_argument("--stream", metavar="ID", type=ident, help=told)
    of_one("delete", "Remove it with everything there is of it, replies too.")
    repair = verb("repair", "Take damaged bytes out of its file; no daemon may run on DIR.")
    repair.add_argument("session", type=ident, help="session id")
    repair.add_argument("--data", metavar="DIR", required=True, help="the data directory")
    repair.add_argument("--uid", metavar="N", type=uid, help="of this user (who asks)")
    repair.add_argument("--json", action="store_true", help="JSON, one object")

    audit = add("audit", "Compare turns with what an application has saved.")
    audit.add_argument("session", nargs="?", type=ident, help="session id (all)")
    store = audit.add_mutually_exclusive_group()
    _add_present(store)
    told = "walld is the only store: what it has is saved, an interrupted turn is no warning"
    store.add_argument("--own-store", action="store_true", help=told)
    audit.add_argument("--all", action="store_true", help="each finding, not a table by kind")
    common(audit, True)
    plan = add("repair-plan", "Print what an application should add to its store.")
    plan.add_argument("session", type=ident, help="session id")
    _add_present(plan)
    common(plan, True)
    explain = add("explain", "Say what happened in a session, what is open, what to do now.")
    explain.add_argument("session", type=ident, help="session id")
    explain.add_argument("--workspace", metavar="DIR", help="compare with what stands there now")
    common(explain, True)
    check = add("resume-check", "Say whether it is safe to go on with a session.")
    check.add_argument("session", type=ident, help="session id")
    check.add_argument("--workspace", metavar="DIR", help="compare with what stands there now")
    common(check, True)


def _add_present(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--present", metavar="FILE", help="turn or message ids that are saved, one a line"
    )


def _duration(text: str) -> float:
    """Seconds of `90s`, `15m`, `1h`, `2d`."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    if unit is None or not text[:-1].isdecimal() or int(text[:-1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 90s, 15m, 1h, 2d")
    return float(text[:-1]) * unit
