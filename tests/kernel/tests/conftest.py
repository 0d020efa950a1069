"""Runs a loop as `make kernel` does, in a process of its own: it forks, and pytest has threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest
from daemon_process import ROOT, environment

__all__ = ["LoopRun"]

LoopRun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def loop(time_limit: None) -> LoopRun:
    """`loop("power_cuts", "--count", "8")`: how it ended and what it said."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = environment()
        own["PYTHONPATH"] += f":{ROOT / 'tests'}"
        own["TMPDIR"] = folder = tempfile.mkdtemp(prefix="walld-k-")
        command = [sys.executable, "-m", f"kernel.{name}", *arguments]
        done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr)
        if done.returncode == 0 or "--spoil" in arguments:
            shutil.rmtree(folder)  # else what failed is kept
        return done

    return run
