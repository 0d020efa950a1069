"""walld repair-plan: what an application should add to its store, and never an answer.

Exit codes: 0 here it is, also where nothing is to be done, 3 there is no such session, 1 cannot
ask. Decides nothing itself: `walld_client.session.audit` does. It changes nothing anywhere.
"""

from __future__ import annotations

import argparse
import json

import msgspec
from walld_client.session.audit import RepairStep
from walld_client.session.ledger_steps import plan

from walld.cli.client import Daemon
from walld.cli.exit_codes import DONE, NOTHING, complain
from walld.cli.query.audit import ids_in
from walld.cli.session_client import SessionClient, say_breaks
from walld.cli.show import as_json
from walld.escape import escaped_line

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Print the steps."""
    present = ids_in(options.present)
    with Daemon(options.socket, options.timeout) as daemon:
        asking = SessionClient(daemon, options.uid)
        if asking.view(options.session, "state") is None:
            complain(f"there is no session {options.session}")
            return NOTHING
        steps = asking.run(plan(options.session, present))
        if options.json:
            print(as_json([msgspec.structs.asdict(step) for step in steps]))
        else:
            _print(steps, present is not None)
        say_breaks(asking, options.session)
    return DONE


def _print(steps: list[RepairStep], is_known: bool) -> None:
    for step in steps:
        print(_about(step))
    if not is_known:
        complain("without --present nothing is known to be missing, so nothing is planned")
    elif not steps:
        print("nothing to do")


def _about(step: RepairStep) -> str:
    content = step.message["content"]
    said = content if isinstance(content, str) else json.dumps(content)
    named = f"turn {step.turn_id}"
    if step.message_id is not None:
        named += f", message {step.message_id}"
    return escaped_line(f"{step.op}: {named}, seq {step.submitted_seq}: {said}")
