"""walld resume-check: is it safe to go on with a session?

Exit codes: 0 ok, 1 blocked, 3 nothing is kept under that id, 4 check (look first), 66 cannot
ask, or no such directory. Decides nothing itself: `sessions/gate/resume.py` does.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from walld_client.session.session_steps import SessionSteps

from walld.cli.client import Daemon
from walld.cli.exit_codes import CANNOT, CHECK, DONE, NO_INPUT, complain
from walld.cli.session_client import SessionClient, nothing_kept
from walld.cli.show import as_json
from walld.escape import escaped_line

__all__ = ["run"]

_CODES = {"ok": DONE, "check": CHECK}
_PATHS_MAX = 100


def run(options: argparse.Namespace) -> int:
    """Print the gate's word."""
    if options.workspace is not None and not os.path.isdir(options.workspace):
        complain(f"there is no directory {options.workspace}: nothing to compare with")
        return NO_INPUT
    with Daemon(options.socket, options.timeout) as daemon:
        asking = SessionClient(daemon, options.uid)
        session = SessionSteps(options.session, None, lambda _: [], None)
        told = asking.run(session.resume_check(options.workspace))
    if told is None:
        return nothing_kept(options.session)
    if options.json:
        print(as_json(told))
    else:
        for line in _lines(told):
            print(escaped_line(line))
    return _CODES.get(told["status"], CANNOT)


def _lines(told: dict[str, Any]) -> list[str]:
    turn = "" if told["turn"] is None else f", turn {told['turn']}"
    lines = [f"{told['status']}: stopped at {told['boundary']}{turn}"]
    lines += [f"  {reason['message']} ({reason['code']})" for reason in told["reasons"]]
    lines += _workspace(told["workspace"])
    for call in told.get("calls", told["tools"]):  # a daemon of 0.1.0 has the second alone
        if call["may"] == "read_result":
            continue  # what it gave is in the session
        why = f" ({call['why']})" if "why" in call else ""
        effect = f"{call['state']}, effect {call['side_effect']}, may: {call['may']}{why}"
        number = f", n {call['n']}" if call.get("n", 1) > 1 else ""
        lines.append(f"  {call['tool']} (call {call['call_id']}{number}): {effect}")
        if (given := call.get("arguments")) is not None:
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            cut = call["arguments_cut"]
            shown = f"{text}... ({cut} characters)" if cut else text
            lines.append(f"    arguments: {shown}")
    return lines


def _workspace(compared: dict[str, Any]) -> list[str]:
    """Its verdict, and a line for each path that differs; nothing where nothing is known of it."""
    if compared["then"] is None and compared["now"] is None:
        return []
    changed = compared["changed"]
    lines = [f"  workspace: {compared['verdict']}"]
    lines += [f"    {one}" for one in changed[:_PATHS_MAX]]
    if len(changed) > _PATHS_MAX:
        lines.append(f"    and {len(changed) - _PATHS_MAX} others")
    return lines
