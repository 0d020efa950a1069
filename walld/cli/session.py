"""walld session: look at sessions, fork, import, export, delete them.

Owns: the verbs. Refuses: the grammar (`session_arguments.py`), drawing (`session_view.py`), other
programs' formats (`foreign/`). Every answer comes from the daemon.

Exit codes: 0 done, 3 there is no such session, proven, 1 cannot know or was refused.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from walld_client.wire import messages as wire

from walld.cli.ask import Daemon
from walld.cli.run import DONE, NOTHING, complain
from walld.cli.session_view import render_show, render_tree
from walld.cli.show import as_json
from walld.errors import WalldError
from walld.escape import escaped, escaped_line
from walld.foreign.detect import read
from walld.foreign.export import to_otel

__all__ = ["run", "view"]

_IMPORT_ENTRIES = 200
"""Entries of one request."""


def run(options: argparse.Namespace) -> int:
    """The verb."""
    with Daemon(options.socket, options.timeout) as daemon:
        return _VERBS[options.verb](daemon, options)


def view(
    daemon: Daemon, session_id: str, name: str, uid: int | None = None, **arguments: Any
) -> Any:
    """A view of a session as JSON gives it; None where it was never written."""
    given = json.dumps(arguments).encode()
    answer = daemon.ask(wire.Project(daemon.next_id(), session_id, name, given, uid))
    told = msgspec.msgpack.decode(answer)
    return None if told is None else json.loads(told)


def _lines(daemon: Daemon, options: argparse.Namespace, after: int = 0) -> list[bytes] | None:
    request = wire.Events(daemon.next_id(), options.session, after, uid=options.uid)
    found: list[bytes] | None = msgspec.msgpack.decode(daemon.ask(request))
    return found


def _no_session(session_id: str) -> int:
    complain(f"there is no session {session_id}")
    return NOTHING


def _ls(daemon: Daemon, options: argparse.Namespace) -> int:
    answer = daemon.ask(wire.Sessions(daemon.next_id(), options.prefix, options.uid))
    found = msgspec.msgpack.decode(answer, type=list[wire.SessionFacts])
    if options.json:
        print(as_json([_fields(facts) for facts in found]))
        return DONE
    rows = [("LAST EVENT", "UID", "EVENTS", "BYTES", "SESSION")]
    for facts in found:
        at = datetime.fromtimestamp(facts.last_at_ms / 1000, UTC)
        shown = at.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
        numbers = (str(facts.uid), str(facts.last_seq), str(facts.bytes))
        rows.append((shown, *numbers, escaped_line(facts.session_id)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    return DONE


def _fields(facts: wire.SessionFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in facts.__struct_fields__}


def _of(name: str) -> Callable[[Daemon, argparse.Namespace], int]:
    def show(daemon: Daemon, options: argparse.Namespace) -> int:
        told = view(daemon, options.session, name, options.uid)
        if told is None:
            return _no_session(options.session)
        print(as_json(told))
        return DONE

    return show


def _show(daemon: Daemon, options: argparse.Namespace) -> int:
    told = view(daemon, options.session, "transcript", options.uid)
    if told is None:
        return _no_session(options.session)
    if options.json:
        print(as_json(told))
        return DONE
    told["session"] = options.session
    width = shutil.get_terminal_size().columns
    print(render_show(told, width=width, colour=_has_colour()))
    return DONE


def _has_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _tree(daemon: Daemon, options: argparse.Namespace) -> int:
    told = view(daemon, options.session, "tree", options.uid)
    if told is None:
        return _no_session(options.session)
    print(as_json(told) if options.json else render_tree(told))
    return DONE


def _events(daemon: Daemon, options: argparse.Namespace) -> int:
    found = _lines(daemon, options, options.after)
    if found is None:
        return _no_session(options.session)
    for line in found:
        print(_ascii(line))
    return DONE


def _ascii(line: bytes) -> str:
    """A line as it stands, with what a terminal would act on as escapes."""
    text = line.decode("utf-8", "surrogatepass").rstrip("\n")
    return escaped_line(text) if not text.isprintable() else text


def _messages(daemon: Daemon, options: argparse.Namespace) -> int:
    told = view(
        daemon,
        options.session,
        "messages",
        options.uid,
        format=options.format,
        branch=options.branch,
        compacted=not options.whole,
    )
    if told is None:
        return _no_session(options.session)
    if options.json or options.format != "plain":
        print(as_json(told))
        return DONE
    for message in told:
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        print(f"--- {escaped_line(str(message.get('role')))}\n{escaped(text or '')}")
    return DONE


def _fork(daemon: Daemon, options: argparse.Namespace) -> int:
    request = wire.Fork(daemon.next_id(), options.session, options.new, options.at, options.whole)
    placed = msgspec.msgpack.decode(daemon.ask(request), type=list[wire.Placed])
    told = {"session": options.new, "last_seq": placed[-1].seq if placed else 0}
    print(
        as_json(told) if options.json else f"{escaped_line(options.new)}: {told['last_seq']} events"
    )
    return DONE


def _export(daemon: Daemon, options: argparse.Namespace) -> int:
    if options.format == "jsonl":
        return _events(daemon, argparse.Namespace(**vars(options), after=0))
    form = "plain" if options.format == "otel" else options.format
    told = view(daemon, options.session, "messages", options.uid, format=form)
    if told is None:
        return _no_session(options.session)
    print(as_json(to_otel(told) if options.format == "otel" else told))
    return DONE


def _import(daemon: Daemon, options: argparse.Namespace) -> int:
    with open(options.file, encoding="utf-8", errors="surrogatepass") as file:
        imported = read(file, options.format)
    if _lines(daemon, argparse.Namespace(session=options.session, uid=None)):
        raise WalldError(f"session {options.session} is there already: import into a new one")
    entries = [
        wire.NewEntry(
            one.type,
            json.dumps(one.payload, separators=(",", ":")).encode(),
            one.id or secrets.token_urlsafe(12),
            one.parent,
            one.turn,
            key=one.key,
            leaf=one.leaf,
            at_ms=one.at_ms or 0,
        )
        for one in imported.entries
    ]
    for at in range(0, len(entries), _IMPORT_ENTRIES):
        piece = entries[at : at + _IMPORT_ENTRIES]
        daemon.ask(wire.Append(daemon.next_id(), options.session, piece, at))
    told = {
        "session": options.session,
        "format": imported.format,
        "version": imported.version,
        "entries": len(entries),
        "not_understood": imported.not_understood,
        "reasons": imported.reasons,
    }
    if options.json:
        print(as_json(told))
        return DONE
    print(
        f"{escaped_line(options.session)}: {len(entries)} entries from {imported.format}, "
        f"{imported.not_understood} lines not understood and kept"
    )
    return DONE


def _compact(daemon: Daemon, options: argparse.Namespace) -> int:
    payload = {"summary": options.summary, "first_kept": options.first_kept}
    entry = wire.NewEntry("compaction", json.dumps(payload).encode(), secrets.token_urlsafe(12))
    request = wire.Append(daemon.next_id(), options.session, [entry])
    placed = msgspec.msgpack.decode(daemon.ask(request), type=list[wire.Placed])
    print(as_json(_placed(placed[0])) if options.json else f"compacted, seq {placed[0].seq}")
    return DONE


def _placed(placed: wire.Placed) -> dict[str, Any]:
    return {"seq": placed.seq, "id": placed.id, "is_new": placed.is_new}


def _delete(daemon: Daemon, options: argparse.Namespace) -> int:
    request = wire.Delete(daemon.next_id(), options.session, options.uid)
    was_there: bool = msgspec.msgpack.decode(daemon.ask(request))
    if options.json:
        print(as_json({"session": options.session, "deleted": was_there}))
    else:
        print("deleted" if was_there else "there was nothing of it")
    return DONE


_VERBS: dict[str, Callable[[Daemon, argparse.Namespace], int]] = {
    "ls": _ls,
    "show": _show,
    "tree": _tree,
    "state": _of("state"),
    "trace": _of("trace"),
    "events": _events,
    "messages": _messages,
    "fork": _fork,
    "export": _export,
    "import": _import,
    "compact": _compact,
    "delete": _delete,
}
