"""The names of a session's files: the tree sessions/<uid>/<session>/.

Owns: the names. Refuses: touching a file, what the files hold.
"""

from __future__ import annotations

from typing import Final

from walld_client.paths import path_name

__all__ = [
    "ARTIFACTS_DIR",
    "DELETED_FILE",
    "EVENTS_FILE",
    "REPAIRED_FILE",
    "SESSIONS_DIR",
    "SNAPSHOT_FILE",
    "is_temporary",
    "session_dir",
    "temporary",
]

SESSIONS_DIR: Final = "sessions"
EVENTS_FILE: Final = "events.jsonl"
SNAPSHOT_FILE: Final = "snapshot"
REPAIRED_FILE: Final = "repaired"
ARTIFACTS_DIR: Final = "artifacts"
DELETED_FILE: Final = ".deleted"
"""In sessions/ itself, where no name of ours begins with a dot."""


def session_dir(uid: int, session_id: str) -> str:
    """The directory of a session: its id is never a path."""
    return f"{SESSIONS_DIR}/{uid}/{path_name(session_id)}"


def temporary(path: str) -> str:
    """The name a file has until it is whole, as `Disk.replace` gives it."""
    head, _, name = path.rpartition("/")
    return f"{head}/.{name}.tmp"


def is_temporary(name: str) -> bool:
    """A file that was never finished."""
    return name.startswith(".") and name.endswith(".tmp")
