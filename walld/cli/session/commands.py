"""walld session: look at sessions, fork, import, export, delete them, settle their calls, adopt.

Owns: the verbs. Refuses: the grammar (`arguments.py`), listing (`ls_sessions.py`), drawing
(`show.py`, `view.py`), importing (`import_file.py`), archiving (`archive.py`), repairing
(`session_repair.py`, which needs the directory without a daemon), other programs' formats
(`foreign/`). The daemon answers all else.

Exit codes: 0 done (a delete also where there was nothing), 3 there is no such session, proven, 1
cannot know or was refused, 64 wrong usage, 66 a file that is given cannot be read.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from walld_client.errors import Refused
from walld_client.recovered.provider import in_format
from walld_client.session import artifacts
from walld_client.session.adopting import orphans
from walld_client.session.session_steps import SessionSteps
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.exit_codes import DONE, NO_INPUT, NOTHING, USAGE, complain
from walld.cli.inspect import session_repair
from walld.cli.session import archive, import_file
from walld.cli.session.show import render_show
from walld.cli.session.view import render_tree
from walld.cli.session_client import SessionClient, say_breaks
from walld.cli.show import as_json, has_colour
from walld.escape import escaped, escaped_line
from walld.foreign.export import to_otel
from walld.ledger.line import LEDGER_VERSION
from walld.sessions.state.artifacts import artifacts_of
from walld.sessions.state.entries import line_event

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """The verb."""
    if options.verb == "repair":
        return session_repair.run(options)
    with Daemon(options.socket, options.timeout) as daemon:
        return _VERBS[options.verb](SessionClient(daemon, getattr(options, "uid", None)), options)


def _no_session(session_id: str) -> int:
    complain(f"there is no session {session_id}")
    return NOTHING


def _of(name: str) -> Callable[[SessionClient, argparse.Namespace], int]:
    def show(asking: SessionClient, options: argparse.Namespace) -> int:
        told = asking.view(options.session, name)
        if told is None:
            return _no_session(options.session)
        print(as_json(told))
        say_breaks(asking, options.session)
        return DONE

    return show


def _show(asking: SessionClient, options: argparse.Namespace) -> int:
    told = asking.view(options.session, "transcript")
    if told is None:
        return _no_session(options.session)
    if options.json:
        print(as_json(told))
    else:
        tree = asking.view(options.session, "tree")
        width = shutil.get_terminal_size().columns
        print(render_show(told, options.session, width=width, colour=has_colour(), tree=tree))
        _say_unsettled(asking, options.session)
    say_breaks(asking, options.session)
    return DONE


def _say_unsettled(asking: SessionClient, session_id: str) -> None:
    """Calls that may have run: also those that only what the session came from has."""
    for one in asking.view(session_id, "pending") or []:
        if one["action"] == "settle_tool":
            tool, call = escaped_line(str(one["tool"])), escaped_line(str(one["call_id"]))
            complain(f"{tool} (call {call}) may have run, and nothing says what became of it")


def _tree(asking: SessionClient, options: argparse.Namespace) -> int:
    told = asking.view(options.session, "tree")
    if told is None:
        return _no_session(options.session)
    width = shutil.get_terminal_size().columns
    print(as_json(told) if options.json else render_tree(told, width=width))
    say_breaks(asking, options.session)
    return DONE


def _events(asking: SessionClient, options: argparse.Namespace) -> int:
    found = asking.lines(options.session, options.after)
    if found is None:
        return _no_session(options.session)
    _print_lines(found)
    say_breaks(asking, options.session)
    return DONE


def _print_lines(lines: Iterator[bytes]) -> None:
    """As they are kept, byte for byte; on a terminal, what it would act on is escaped."""
    sys.stdout.flush()
    is_terminal = sys.stdout.isatty()
    for line in lines:
        if is_terminal:
            print(escaped_line(line.decode("utf-8", "backslashreplace").removesuffix("\n")))
        else:
            sys.stdout.buffer.write(line)
    sys.stdout.flush()


def _said(
    asking: SessionClient,
    session_id: str,
    format: str,  # noqa: A002
    **arguments: Any,
) -> list[dict[str, Any]] | None:
    """Messages, with the content that was put beside the session, then for a provider."""
    told = asking.view(session_id, "messages", **arguments)
    if told is None:
        return None
    is_sent = format != "plain"
    return in_format([_whole(asking, session_id, one, is_sent) for one in told], format)


def _whole(
    asking: SessionClient, session_id: str, message: dict[str, Any], is_sent: bool
) -> dict[str, Any]:
    whole = asking.run(artifacts.resolved(session_id, message, is_sent))
    if lost := whole.pop("_artifact_lost", None):  # the rest is there, and the start of this one
        told = {name: whole.get(name) for name in ("content", "tool_calls", "tool_results")}
        named = ", ".join(digest for digest, _size in artifacts_of("message", told))
        complain(f"content of session {session_id} is lost: {lost}, sha256 {named}")
    return whole


def _messages(asking: SessionClient, options: argparse.Namespace) -> int:
    told = _said(
        asking,
        options.session,
        format=options.format,
        branch=options.branch,
        compacted=not options.whole,
        **({} if options.unknown == "say" else {"unknown": options.unknown}),
    )
    if told is None:
        return _no_session(options.session)
    if options.json or options.format != "plain":
        print(as_json(told))
    else:
        for message in told:
            content = message.get("content")
            text = content if isinstance(content, str) else json.dumps(content)
            print(f"--- {escaped_line(str(message.get('role')))}\n{escaped(text or '')}")
    say_breaks(asking, options.session)
    return DONE


def _fork(asking: SessionClient, options: argparse.Namespace) -> int:
    names = (options.session, options.new, options.at, options.whole)
    try:
        answer = asking.ask(lambda number: wire.Fork(number, *names))
    except Refused as error:
        if error.code != "unknown_session":
            raise
        return _no_session(options.session)
    placed = msgspec.msgpack.decode(answer, type=list[wire.Placed])
    told = {"session": options.new, "last_seq": placed[-1].seq if placed else 0}
    shown = f"{escaped_line(options.new)}: {told['last_seq']} events"
    print(as_json(told) if options.json else shown)
    _say_missing(asking, options.session, options.new)
    return DONE


def _say_missing(asking: SessionClient, session_id: str, new_id: str) -> None:
    """What a fork could not copy, as its first entry has it: the gate of the fork is not shut."""
    line = asking.first_line(new_id)
    missing = [] if line is None else json.loads(line)["payload"].get("missing") or []
    for first_seq, last_seq in missing:
        whose = f"session {session_id}, or of what that came from"
        complain(f"{new_id} lacks events {first_seq} to {last_seq} of {whose}: they are lost")


def _export(asking: SessionClient, options: argparse.Namespace) -> int:
    if options.format == "jsonl":
        return _export_lines(asking, options.session)
    form = "plain" if options.format == "otel" else options.format
    told = _said(asking, options.session, format=form)
    if told is None:
        return _no_session(options.session)
    print(as_json(to_otel(told) if options.format == "otel" else told))
    say_breaks(asking, options.session)
    return DONE


def _export_lines(asking: SessionClient, session_id: str) -> int:
    """First how far the session went, then its lines: who reads fewer knows what is missing.

    How far is asked before: what comes meanwhile is not taken for lost.
    """
    last_seq = _last_seq(asking, session_id)
    found = asking.lines(session_id)
    if last_seq is None or found is None:
        return _no_session(session_id)
    print(json.dumps({"walld": LEDGER_VERSION, "last_seq": last_seq}))
    named: set[str] = set()
    _print_lines(_noting_artifacts(found, named))
    say_breaks(asking, session_id)
    if named:
        complain(
            f"{len(named)} artifacts that these lines name stay here, and an import of the lines"
            " misses their bytes (a fork takes them along)"
        )
    return DONE


def _last_seq(asking: SessionClient, session_id: str) -> int | None:
    """The highest that was given; None of a session that was never written."""
    try:
        state = asking.view(session_id, "state")
    except Refused as refused:
        if refused.code != "view_length":
            raise
        newest = asking.view(session_id, "find", last=1) or []
        lost = [one["last_seq"] for one in asking.breaks.values()]
        return max([one["seq"] for one in newest] + lost, default=0)
    return None if state is None else int(state["last_seq"])


def _noting_artifacts(lines: Iterator[bytes], named: set[str]) -> Iterator[bytes]:
    for line in lines:
        if b"sha256" in line:
            event = line_event(line)
            named.update(digest for digest, _ in artifacts_of(event.type, event.payload))
        yield line


def _compact(asking: SessionClient, options: argparse.Namespace) -> int:
    if not asking.is_there(options.session):
        return _no_session(options.session)
    payload = {"summary": options.summary, "first_kept": options.first_kept}
    text = asking.run(artifacts.fitted(options.session, payload, "compaction"))
    entry = wire.NewEntry("compaction", text, secrets.token_urlsafe(12))
    answer = asking.ask(lambda number: wire.Append(number, options.session, [entry]))
    (placed,) = msgspec.msgpack.decode(answer, type=list[wire.Placed])
    told = {"seq": placed.seq, "id": placed.id, "is_new": placed.is_new}
    print(as_json(told) if options.json else f"compacted, seq {placed.seq}")
    return DONE


def _settle(asking: SessionClient, options: argparse.Namespace) -> int:
    if options.result is not None and options.word != "ran":
        complain(f"--result is of --ran, got it with {options.word!r}")
        return USAGE
    if options.for_seconds is not None and options.word != "granted":
        complain(f"--for is of --grant, got it with {options.word!r}")
        return USAGE
    result = None
    try:
        if options.result == "-":
            result = sys.stdin.buffer.read().decode()
        elif options.result is not None:
            result = Path(options.result).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        complain(f"--result {escaped_line(options.result)} cannot be read as UTF-8: {error}")
        return NO_INPUT
    until = None if options.for_seconds is None else time.time() + options.for_seconds
    session = SessionSteps(options.session, None, lambda _: [], None)
    entry = asking.run(
        session.settle(
            options.call,
            options.word,
            result=result,
            note=options.note,
            by=options.by,
            expires_at=until,
            turn=options.turn,
            stream_id=options.stream,
            n=options.n,
            force=options.force,
        )
    )
    told = {"seq": entry.seq, "id": entry.id, "word": options.word}
    print(as_json(told) if options.json else f"settled: {options.word}, seq {entry.seq}")
    return DONE


def _adopt(asking: SessionClient, options: argparse.Namespace) -> int:
    app = options.app or os.environ.get("WALLD_APP")  # a command is no application by itself
    session = SessionSteps(options.session, None, lambda _: [], None, None if app == "*" else app)
    made = asking.run(session.adopt(options.stream))
    left = asking.run(orphans(session, None, None)) if options.stream is None else []
    if left:
        count = "1 reply" if len(left) == 1 else f"{len(left)} replies"
        complain(f"{count} of other applications left: --app NAME, or --app '*' for all")
    elif not made:
        complain("no reply of a process that is gone waits there")
    if options.json:
        print(as_json([{"seq": one.seq, "id": one.id, "is_new": one.is_new} for one in made]))
    else:
        print(f"adopted: {len(made)} message{'' if len(made) == 1 else 's'}")
    return DONE


def _delete(asking: SessionClient, options: argparse.Namespace) -> int:
    answer = asking.ask(lambda number: wire.Delete(number, options.session))
    was_there: bool = msgspec.msgpack.decode(answer)
    if options.json:
        print(as_json({"session": options.session, "deleted": was_there}))
    else:
        shown = escaped_line(options.session)
        print(f"deleted: {shown}" if was_there else f"there was nothing of it: {shown}")
    return DONE


_VERBS: dict[str, Callable[[SessionClient, argparse.Namespace], int]] = {
    "show": _show,
    "tree": _tree,
    "state": _of("state"),
    "trace": _of("trace"),
    "events": _events,
    "messages": _messages,
    "fork": _fork,
    "export": _export,
    "archive": archive.run,
    "import": import_file.run,
    "compact": _compact,
    "settle": _settle,
    "adopt": _adopt,
    "delete": _delete,
}
