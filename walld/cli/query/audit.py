"""walld audit: turns against what an application has saved.

Exit codes: 0 ok, 1 warn, 2 needs manual review, 3 there is no such session, 66 cannot ask. Judges
nothing itself: `walld_client.session.audit` does.

Where walld is the application's only store, each turn is saved that it has. What it lost itself is
saved nowhere: a submission that damage took stays a finding.
"""

from __future__ import annotations

import argparse
import json
import shutil
from typing import Final

import msgspec
from walld_client.session.audit import (
    BROKEN,
    MALFORMED,
    MISSING,
    AuditedTurn,
    AwaitedPresent,
    Finding,
    Report,
)
from walld_client.session.ledger_steps import audited

from walld.cli.client import Daemon
from walld.cli.exit_codes import NOTHING, complain
from walld.cli.query.audit_table import table
from walld.cli.session_client import SessionClient
from walld.cli.show import as_json
from walld.errors import ConfigError
from walld.escape import escaped_line

__all__ = ["ids_in", "run"]

PRESENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a file of ids: a million of them and more."""
_OF_THE_SESSION: Final = (BROKEN, MALFORMED, MISSING)


def run(options: argparse.Namespace) -> int:
    """Print what was found."""
    present: AwaitedPresent = _is_kept if options.own_store else ids_in(options.present)
    with Daemon(options.socket, options.timeout) as daemon:
        report = SessionClient(daemon, options.uid).run(audited(options.session, present))
    if options.session is not None and not report.sessions:
        complain(f"there is no session {options.session}")
        return NOTHING
    if options.json:
        print(as_json(report.to_dict()))
        return report.exit_code
    for line in _lines(report, is_whole=options.all or options.session is not None):
        print(line)
    return report.exit_code


def _is_kept(turn: AuditedTurn) -> bool:
    """Whether walld, being the application's only store, has what was submitted."""
    return not turn.submission_lost


def ids_in(path: str | None) -> frozenset[str] | None:
    """Turn or message ids, one a line; None where nobody said what is saved."""
    if path is None:
        return None
    with open(path, "rb") as file:
        content = file.read(PRESENT_BYTES_MAX + 1)
    if len(content) > PRESENT_BYTES_MAX:
        text = f"more than {PRESENT_BYTES_MAX} bytes, ids are UTF-8 text, one a line"
        raise ConfigError(f"--present {path}: {text}")
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--present {path}: byte {error.start} is no UTF-8, ids are UTF-8 text, one a line"
        ) from None
    return frozenset(stripped for line in lines if (stripped := line.removesuffix("\r")))


def _lines(report: Report, *, is_whole: bool) -> list[str]:
    word = {"ok": "ok", "warn": "warn", "needs_manual_review": "needs manual review"}
    lines = [f"{word[report.overall]}: {report.sessions} sessions, {report.turns} turns"]
    if is_whole:
        lines += (f"  {_about(one)}" for one in report.findings)
        for turn_id, count in report.collisions.items():
            lines.append(f"  turn {escaped_line(turn_id)}: ended {count} times more than once")
        return lines
    lines += table(report.findings, _example, shutil.get_terminal_size().columns)
    if report.collisions:
        lines.append(f"turns that ended more than once: {len(report.collisions)}")
    if len(lines) > 1:
        lines.append("walld audit --all prints each of them, walld audit SESSION those of one")
    return lines


def _about(one: Finding) -> str:
    return f"{one.category}: {one.kind}: {_where(one)}"


def _example(one: Finding) -> str:
    """Short: whoever wants the message's id as well asks for all."""
    return _where(msgspec.structs.replace(one, message_id=None))


def _where(one: Finding) -> str:
    where = f"session {one.session_id}"
    if one.turn_id is not None:
        where += f", turn {one.turn_id}"
    if one.message_id is not None:
        where += f", message {one.message_id}"
    if one.subject is not None:
        where += f", {_subject(one)}"
    detail = f": {one.detail}" if one.detail else ""
    return escaped_line(f"{where}{detail}")


def _subject(one: Finding) -> str:
    """What is wrong with the session itself is an object of JSON: its members, for a person."""
    text = one.subject or ""
    if one.kind not in _OF_THE_SESSION or not text.startswith("{"):
        return text  # an id, whatever it looks like
    return ", ".join(f"{name} {value}" for name, value in json.loads(text).items() if value != "")
