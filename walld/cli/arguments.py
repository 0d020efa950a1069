"""The grammar of the command line.

Owns: commands, options and their help. Refuses: checking settings (`daemon/settings.py` does, so
that a flag, a variable and a file are judged alike) and importing what only one command needs.

Invariant: wrong usage exits 64, with the usage line; never argparse's 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from walld.cli.exit_codes import USAGE
from walld.cli.session.arguments import add_session_commands
from walld.escape import escaped_line

__all__ = ["SETTINGS", "parse"]

SETTINGS = {
    "data": (
        "DIR",
        "data directory ($STATE_DIRECTORY, $XDG_STATE_HOME/walld, ~/.local/state/walld)",
    ),
    "socket": ("PATH", "socket to listen on, unless the service manager opened one"),
    "socket_mode": ("MODE", "its mode, octal (0600; 0660 where a group is given)"),
    "socket_group": ("GROUP", "its group"),
    "flush_bound_ms": ("MS", "age at which an event is written at the latest (3000)"),
    "flush_linger_ms": ("MS", 'how long a flush waits for company: "auto" or milliseconds'),
    "reclaim_seconds": ("S", "how long a released reply may stay on disk (30)"),
    "retention_seconds": ("S", "running time a reply that is not released stays (604800: 7 days)"),
    "release_hold_seconds": ("S", "keep released bytes this long all the same (0)"),
    "metrics": ("HOST:PORT", 'serve Prometheus metrics there; "off", or a port of 127.0.0.1'),
    "backend": ("NAME", "asyncio+uvloop, asyncio or trio"),
    "log_format": ("FORMAT", "text or json"),
    "expect_data": ("", "there is data already: do not start on an empty directory"),
}
"""Settings that are flags of `serve` and `config`: key -> placeholder and help. No placeholder: the
flag alone means yes."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {escaped_line(message)}\n")


def _prefix(text: str) -> str:
    """The beginning of an id, which may be nothing."""
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("an id is UTF-8 text") from None
    if length > 1024:
        raise argparse.ArgumentTypeError(f"an id of {length} bytes, at most 1024 are possible")
    return text


def _id(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an id of 0 bytes, at least 1 is needed")
    return _prefix(text)


def _path(text: str) -> str:
    """A path from a script's variable that is empty must not quietly mean the default."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path")
    return text


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def _seq(text: str) -> int:
    number = _whole(text)
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(f"{number} is not from 0 to {2**32 - 1}")
    return number


def _uid(text: str) -> int:
    number = _whole(text)
    if not 0 <= number < 2**32 - 1:
        raise argparse.ArgumentTypeError(f"{number} is no user id")
    return number


def _timeout(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and up to 3600 seconds")
    return seconds


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="TOML file ($WALLD_CONFIG)")
    for key, (placeholder, text) in SETTINGS.items():
        flag = "--" + key.replace("_", "-")
        if placeholder:
            command.add_argument(flag, metavar=placeholder, help=text)
        else:
            command.add_argument(flag, action="store_const", const="yes", help=text)


def _add_daemon(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--socket", metavar="PATH", type=_path, help="the daemon's socket ($WALLD_SOCKET)"
    )
    command.add_argument(
        "--timeout", metavar="S", type=_timeout, default=2.0, help="wait this long for it (2)"
    )


def _add_offline(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--data", metavar="DIR", type=_path, help="read this directory instead of asking a daemon"
    )


def _add_uid(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--uid", metavar="N", type=_uid, help="another user's (root and walld's own user)"
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="for programs")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="walld",
        description="Keeps what an AI agent said, whatever dies.",
        epilog="Exit codes: 0 done, 1 cannot (fsck: torn; audit: warn; resume-check: blocked), "
        "2 corrupt, nothing salvaged, or an audit that wants a person, 3 nothing there, proven, "
        "4 check (resume-check), 64 wrong usage, 66 fsck or salvage cannot read DIR, audit, "
        "explain or resume-check cannot ask. run: the program's "
        "own, 128 and the number of the signal that ended it, 125 there is no daemon, 126 PROGRAM "
        "cannot be run, 127 it is not there.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, allow_abbrev=False)

    serve = add("serve", "Run the daemon.")
    _add_settings(serve)
    serve.add_argument(
        "--until-unused",
        metavar="FILE",
        type=_path,
        help="end when no process holds a lock on FILE and nothing is unreleased (walld run)",
    )

    run = add("run", "Run a program with a daemon, which is started where none answers.")
    run.add_argument("--socket", metavar="PATH", type=_path, help=SETTINGS["socket"][1])
    run.add_argument("--data", metavar="DIR", type=_path, help=SETTINGS["data"][1])
    run.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="with its arguments"
    )

    demo = add("demo", "Stream a reply, kill the agent in the middle, recover what it said.")
    demo.add_argument("--kill-after", metavar="N", type=_seq, help="kill after N events")

    status = add("status", "Ask the daemon how it is.")
    _add_daemon(status)
    form = status.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument(
        "--prometheus", action="store_true", help="the metrics, as a scrape gets them"
    )

    ls = add("ls", "List the replies that are not released.")
    ls.add_argument(
        "prefix", nargs="?", default="", type=_prefix, help="only sessions beginning so"
    )
    _add_daemon(ls)
    _add_offline(ls)
    _add_uid(ls)
    _add_json(ls)

    recover = add("recover", "Print the latest reply of a session that is not released.")
    recover.add_argument("session", nargs="?", type=_id, help="session id")
    recover.add_argument("--stream", metavar="ID", type=_id, help="this reply")
    form = recover.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all fields and the messages")
    form.add_argument("--text", action="store_true", help="the text and nothing else")
    recover.add_argument("--resolve", action="store_true", help="then remove it")
    _add_daemon(recover)
    _add_offline(recover)
    _add_uid(recover)

    resolve = add("resolve", "Remove a reply whose owner is gone.")
    resolve.add_argument("stream", type=_id, help="stream id")
    resolve.add_argument(
        "--last-seq", metavar="N", type=_seq, help="only if it has not grown beyond this"
    )
    _add_daemon(resolve)
    _add_uid(resolve)
    _add_json(resolve)

    dump = add("dump", "Print what stands in segments and partials, also of a live daemon.")
    dump.add_argument("paths", nargs="*", metavar="PATH", help="only these files")
    dump.add_argument("--data", metavar="DIR", type=_path, help="data directory")
    dump.add_argument("--items", action="store_true", help="what stands in each record, too")
    _add_json(dump)

    fsck = add("fsck", "Say whether a data directory is whole, and what damage cost; only reads.")
    fsck.add_argument("directory", metavar="DIR", type=_path, help="data directory")
    _add_json(fsck)

    salvage = add("salvage", "Take what can be read of a damaged data directory into a new one.")
    salvage.add_argument("directory", metavar="DIR", type=_path, help="data directory, only read")
    salvage.add_argument(
        "--to", metavar="DIR2", type=_path, required=True, help="the new one: not there, or empty"
    )
    _add_json(salvage)

    selftest = add("selftest", "Try which durability classes a directory's mount can honour.")
    selftest.add_argument("directory", metavar="DIR", type=_path, help="any directory on it")
    selftest.add_argument(
        "--seconds", metavar="N", type=_timeout, default=20.0, help="be done after about this (20)"
    )
    _add_json(selftest)

    def common(command: argparse.ArgumentParser, has_uid: bool) -> None:
        _add_daemon(command)
        if has_uid:
            _add_uid(command)
        _add_json(command)

    add_session_commands(add, common, _prefix, _id, _seq, _uid)

    config = add("config", "Print every setting with its origin, and the fixed limits.")
    _add_settings(config)
    _add_json(config)
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options, with `command` set. SystemExit for --help, --version and wrong usage."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.version:
        from walld import __version__

        print(f"walld {__version__}")
        parser.exit(0)
    if options.command is None:
        parser.error("which command? (walld --help lists them)")
    if options.command == "recover":
        if options.session is None and options.stream is None:
            parser.error("recover: give a SESSION, or --stream ID")
        if options.resolve and options.data is not None:
            parser.error("recover: --data only reads; --resolve needs the daemon")
    if options.command == "run":
        if options.program[:1] == ["--"]:
            del options.program[0]
        if not options.program:
            parser.error("run: which program? (walld run -- PROGRAM ...)")
    asks = options.command not in ("serve", "run", "config")
    if asks and getattr(options, "data", None) and getattr(options, "socket", None):
        parser.error("--socket asks a daemon, --data reads a directory: give one of them")
    return options
