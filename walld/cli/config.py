"""`walld config`: every setting, its value and where it came from; every fixed limit.

Owns: the two tables. Refuses: changing anything.
"""

from __future__ import annotations

import argparse

from walld import limits
from walld.cli.exit_codes import DONE
from walld.cli.serve import settings_of
from walld.cli.show import as_json
from walld.daemon.settings import KEYS
from walld.escape import escaped_line

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """What `walld serve` with the same options would use."""
    settings = settings_of(options)
    fixed = {
        name: value
        for name, value in vars(limits).items()
        if name.isupper() and name not in ("KIB", "MIB")
    }
    if options.json:
        rows = {
            key: {"value": settings.shown(key), "origin": settings.origins[key]} for key in KEYS
        }
        print(as_json({"settings": rows, "limits": fixed}))
        return DONE
    shown = {key: escaped_line(settings.shown(key)) or "-" for key in KEYS}
    width = max(len(value) for value in shown.values())
    for key in KEYS:
        print(f"{key:<22}{shown[key]:<{width + 2}}{escaped_line(settings.origins[key])}")
    print("\nfixed limits (walld/limits.py)")
    for name, limit in fixed.items():
        print(f"{name.lower():<30}{_with_unit(name, limit)}")
    return DONE


def _with_unit(name: str, limit: float) -> str:
    if "BYTES" in name and limit >= limits.MIB and limit % limits.MIB == 0:
        return f"{limit // limits.MIB} MiB"
    if "BYTES" in name and limit >= limits.KIB and limit % limits.KIB == 0:
        return f"{limit // limits.KIB} KiB"
    return f"{limit}"
