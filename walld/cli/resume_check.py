"""walld resume-check: is it safe to go on with a session?

Exit codes: 0 ok, 1 blocked or cannot know. Decides nothing itself: `sessions/resume.py` does.
"""

from __future__ import annotations

import argparse

from walld_client.fingerprint import workspace_fingerprint

from walld.cli.ask import Daemon
from walld.cli.run import CANNOT, DONE, complain
from walld.cli.session import view
from walld.cli.show import as_json
from walld.escape import escaped_line

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Print the gate's word."""
    given = {}
    if options.workspace is not None:
        given["workspace"] = workspace_fingerprint(options.workspace)
    with Daemon(options.socket, options.timeout) as daemon:
        told = view(daemon, options.session, "resume", options.uid, **given)
    if told is None:
        complain(f"there is no session {options.session}")
        return CANNOT
    ok = told["status"] == "ok"
    if options.json:
        print(as_json(told))
        return DONE if ok else CANNOT
    print(f"{told['status']}: stopped at {told['boundary']}")
    for reason in told["reasons"]:
        print(f"  {escaped_line(reason['message'])}")
    for tool in told["tools"]:
        shown = f"{tool['tool']} (call {tool['call_id']}): {tool['state']}, may: {tool['may']}"
        print(f"  {escaped_line(shown)}")
    return DONE if ok else CANNOT
