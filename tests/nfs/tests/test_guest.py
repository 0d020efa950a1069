"""The guest has what walld itself needs, and no more: what runs in it must not ask for a test's."""

from __future__ import annotations

import subprocess
import sys

from daemon_process import environment

from nfs.image import ROOT

_ABSENT = ("pytest", "_pytest", "hypothesis", "trio", "atheris", "httpx", "redis", "nats")
_PROGRAM = """
import sys
for name in {absent}:
    sys.modules[name] = None
import nfs.inside
"""


def test_what_runs_in_the_guest_needs_walld_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(absent=_ABSENT)],
        env=environment(),
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
