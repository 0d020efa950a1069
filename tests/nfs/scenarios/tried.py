"""What `walld selftest` says of an NFS mount: a hard one keeps what is synced, a soft one does not.

Owns: the two mounts and what must be said of each. Refuses: showing that a soft mount loses data;
that it may is what `soft` means.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from daemon_process import environment

from nfs.exports import OwnExport, mounted

__all__ = ["run"]

_SECONDS: Final = 5
_SECONDS_MAX: Final = 180.0


def run() -> list[str]:
    """Its figures."""
    export = OwnExport("tried", 64)
    figures = []
    try:
        for options, code_wanted, synced in (
            ("vers=4.2,hard", 0, "yes"),
            ("vers=4.2,soft,timeo=50", 1, "no"),
        ):
            with mounted(export, options, name="tried-now") as place:
                code, report = _selftest(place)
            verdict = report["classes"]["synced"]
            latency = report["latency"] or {}
            figures.append(
                f"{options}: exit {code}, synced {verdict['verdict']}: {verdict['why']}; "
                f"sync p50 {latency.get('sync_p50', 0) / 1000:.1f} ms"
            )
            print(figures[-1], flush=True)
            assert report["mount"]["kind"] == "nfs4", report["mount"]
            assert (code, verdict["verdict"]) == (code_wanted, synced), figures[-1]
            for level in ("sent", "written"):
                assert report["classes"][level]["verdict"] == "yes", report["classes"]
            assert synced == "yes" or "soft" in verdict["why"], verdict["why"]
    finally:
        export.close()
    return figures


def _selftest(place: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "walld", "selftest", str(place), "--json"]
    done = subprocess.run(
        [*command, "--seconds", str(_SECONDS)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert done.stdout, f"exit {done.returncode}: {done.stderr}"
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report
