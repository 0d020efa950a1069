"""The entry that ends a turn which nobody works on any more.

Owns: its payload. Refuses: when a turn is interrupted (`turn_watcher.py`, `fork_contents.py`).
"""

from __future__ import annotations

import json

from walld_client.wire import messages as wire

__all__ = ["interruption"]


def interruption(turn_id: str, reason: str, entry_id: str) -> wire.NewEntry:
    """The daemon's word that a turn will not go on."""
    payload = json.dumps({"reason": reason, "by": "daemon"}).encode()
    return wire.NewEntry("turn_interrupted", payload, entry_id, turn=turn_id, leaf=False)
