"""`python -m nfs`: walld on the kernel's own NFS client and server, in a virtual machine.

    --only WORDS    scenarios with one of these words in their name: a,b (--list names them)
    --cache FOLDER  where the guest is kept; $WALLD_NFS_CACHE, else below the user's cache
    --spoil BUG     with that bug planted in the guest's copy of walld: the run must fail
    --list          scenarios and bugs

A machine that lacks what it takes says so and counts as passed: "skipped: ...". Exit 1 where a
promise was broken, or the guest did not come to its end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from . import needs
from .image import image
from .machine import Silent, run
from .spoiled import SPOILED
from .tree import make_tree

__all__ = ["main"]

SCENARIOS: Final = {
    "quiet": "RPCs and wire bytes of a flush, v4.2",
    "quiet-v3": "the same on v3",
    "beside": "RPCs a reply, beside a file for each stream",
    "outage": "the server is away for ten seconds",
    "full": "the server's disk is full, and has room again",
    "failing": "the server's device fails, and COMMIT with it",
    "second": "a second writer by another mount is refused",
    "takeover": "a daemon that was suspended is fenced by the next one",
    "removed": "segments removed and replaced on the server",
    "killed": "SIGKILL and a restart, again and again",
    "selftest": "what `walld selftest` says of hard and soft mounts",
}
_SECONDS_MAX: Final = 2400.0


def _cache_folder() -> Path:
    given = os.environ.get("WALLD_NFS_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "walld-nfs"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nfs")
    parser.add_argument(
        "--only", default="", help="scenarios with one of these words (a,b) in their name"
    )
    parser.add_argument("--cache", type=Path, default=_cache_folder(), help="keeps the guest")
    parser.add_argument("--spoil", choices=sorted(SPOILED), default="", help="plant that bug")
    parser.add_argument("--list", action="store_true", help="scenarios and bugs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = _options(arguments)
    if chosen.list:
        for name, text in SCENARIOS.items():
            print(f"{name:<10} {text}")
        for name, bug in SPOILED.items():
            print(f"--spoil {name:<18} breaks {bug.breaks}")
        return 0
    # Also `kill` and `timeout` leave no machine behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    names = [name for name in SCENARIOS if any(word in name for word in chosen.only.split(","))]
    if not names:
        print(f"no scenario has {chosen.only!r} in its name", file=sys.stderr)
        return 64
    try:
        needs.get()
        guest = image(chosen.cache)
    except needs.Missing as reason:
        print(f"skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory(prefix="walld-nfs-") as folder:
        tree = Path(folder) / "tree.ext4"
        make_tree(tree, chosen.spoil)
        # The guest may write to its drives; what it writes goes to files that have no name.
        os.environ["TMPDIR"] = folder
        verdicts = _listen(guest, tree, names)
    return _conclude(names, verdicts)


def _listen(guest: Any, tree: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Run it; what it says goes to standard output, its verdicts are returned by scenario."""
    verdicts: dict[str, dict[str, Any]] = {}
    begun = time.monotonic()
    try:
        for said in run(guest, tree, [f"walld.only={','.join(names)}"], _SECONDS_MAX):
            at = f"{time.monotonic() - begun:5.0f} s"
            if isinstance(said, str):
                print(f"{at}  {said}", flush=True)
                continue
            verdicts[said["scenario"]] = said
            word = "ok" if said["wrong"] is None else f"FAILED: {said['wrong']}"
            print(f"{at}  {said['scenario']}: {word}", flush=True)
    except Silent as reason:
        print(f"nfs: {reason}", file=sys.stderr, flush=True)
    print(f"nfs: the guest ran for {time.monotonic() - begun:.0f} s", flush=True)
    return verdicts


def _conclude(names: list[str], verdicts: dict[str, dict[str, Any]]) -> int:
    """The table; the exit code."""
    failed = []
    for name in names:
        verdict = verdicts.get(name)
        if verdict is None or verdict["wrong"] is not None:
            failed.append(name)
        word = "never ran" if verdict is None else "ok" if name not in failed else "FAILED"
        print(f"{name:<10} {word:<10} {SCENARIOS[name]}")
        for line in () if verdict is None else verdict["figures"]:
            print(f"           {line}")
    print(f"nfs: {len(failed)} of {len(names)} FAILED" if failed else "nfs: all promises held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
