"""A LangGraph thread as entries of a session. Pure: it knows no SDK and asks nobody.

Owns: the payload of each kind of entry, its key, and the fold of entries into checkpoints. Refuses:
asking (`checkpoint_steps.py`), what a value means (the saver's serde makes bytes of it).

- A checkpoint is found from its own entry: what it does not hold itself it names by the seq of
  an earlier entry. A value whose version did not change is stored once, however many checkpoints
  have it.
- What is named stands earlier in the same log. The entry's parent is the entry of the checkpoint
  that names were taken from; the daemon refuses a parent that is not there, so a thread that was
  deleted and begun anew is never written to with names of the old one.
- Of writes with one (task, index) the first stands, so a task that is run again adds nothing; of
  those with an index below 0 (errors, interrupts, resumes) the last.
- Newer is what stands later in the log, of one namespace. No id is compared and no clock there.
- A drop hides what stands before it. Bytes leave the disk with the whole session only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "CHECKPOINT",
    "DROP",
    "EARLY",
    "WRITES",
    "Known",
    "Stored",
    "Thread",
    "Typed",
    "Version",
    "Write",
    "blob",
    "bytes_of",
    "fold",
    "kept_values",
    "key_prefix",
    "known_of",
    "lasting",
]

CHECKPOINT = "langgraph.checkpoint"
WRITES = "langgraph.writes"
DROP = "langgraph.drop"
EARLY = "langgraph.early"
"""Stands before writes of a checkpoint that whoever made them had not seen in the log."""

Typed = tuple[str, bytes]
"""What the serde makes of a value: the name of its form, and bytes."""
Version = str | int | float
Name = tuple[str, str]
"""Namespace and checkpoint id."""


class Write(NamedTuple):
    """What a task wrote to a channel. place: in the task, below 0 for special ones."""

    place: int
    channel: str
    value: Typed


class Known(NamedTuple):
    """An entry that a later checkpoint may name, and where each of its values stands."""

    entry_id: str
    values: dict[str, tuple[Version | None, int]]


class Stored(NamedTuple):
    """A checkpoint as it stands in the log."""

    ns: str
    id: str
    seq: int
    entry_id: str
    payload: dict[str, Any]
    writes: dict[tuple[str, int], tuple[str, str, dict[str, Any]]]
    """(task, index): task path, channel, blob."""

    @property
    def parent_id(self) -> str | None:
        """The checkpoint it was made from."""
        return self.payload.get("parent_id")

    def ordered_writes(self) -> Iterator[tuple[str, str, int, str, dict[str, Any]]]:
        """Task, path, index, channel, blob, in the order in which a live run applies them."""
        for task_id, index in sorted(self.writes, key=lambda one: (self.writes[one][0], *one)):
            task_path, channel, held = self.writes[task_id, index]
            yield task_id, task_path, index, channel, held


Thread = dict[Name, Stored]
"""Its checkpoints, the oldest first."""


def key_prefix(ns: str, checkpoint_id: str | None = None) -> str:
    """What the keys of a namespace, or of one checkpoint, begin with.

    A namespace may be longer than a key: all but the root are their hash.
    """
    room = (
        "root" if not ns else hashlib.sha256(ns.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    )
    return f"{room}:" if checkpoint_id is None else f"{room}:{checkpoint_id}:"


# --- values --------------------------------------------------------------------------------------


def blob(value: Typed, named: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A value in a payload: its bytes, or what names the artifact that holds them."""
    form, raw = value
    if named is not None:
        return {"form": form, "_artifact": dict(named)}
    return {"form": form, "base64": base64.b64encode(raw).decode()}


def bytes_of(held: Mapping[str, Any]) -> Typed | str:
    """The value of a blob, or the hash of the artifact that holds it."""
    if "_artifact" in held:
        return str(held["_artifact"]["sha256"])
    return str(held["form"]), base64.b64decode(held["base64"], validate=True)


def kept_values(
    parent: Known | None,
    versions: Mapping[str, Version],
    new_versions: Mapping[str, Version],
    channels: Iterable[str],
) -> dict[str, int]:
    """The channels whose value the parent's line has already, with the seq of the entry."""
    if parent is None:
        return {}
    kept = {}
    for channel in channels:
        version, seq = parent.values.get(channel, (None, 0))
        if version is not None and channel not in new_versions and versions.get(channel) == version:
            kept[channel] = seq
    return kept


def known_of(stored: Stored) -> Known:
    """What a later checkpoint may name of this one."""
    values = stored.payload["values"]
    return Known(
        stored.entry_id,
        {
            channel: (held.get("version"), held.get("at", stored.seq))
            for channel, held in values.items()
        },
    )


# --- the fold ------------------------------------------------------------------------------------


def fold(events: Iterable[Mapping[str, Any]]) -> Thread:
    """Checkpoints with their writes, the oldest first. Entries of other types are passed over."""
    checkpoints: dict[Name, tuple[int, str, dict[str, Any]]] = {}
    writes: dict[Name, dict[tuple[str, int], tuple[str, str, dict[str, Any]]]] = {}
    for event in events:
        kind = event["type"]
        if kind not in (CHECKPOINT, WRITES, DROP):
            continue
        payload = event["payload"]
        name = (payload["ns"], payload["checkpoint_id"])
        if kind == CHECKPOINT:
            checkpoints.pop(name, None)  # put once more, it is newer
            checkpoints[name] = (event["seq"], event["id"], payload)
        elif kind == DROP:
            checkpoints.pop(name, None)
            writes.pop(name, None)
        else:
            there = writes.setdefault(name, {})
            for one in payload["writes"]:
                place = (payload["task_id"], one["index"])
                if one["index"] < 0 or place not in there:
                    there[place] = (payload["task_path"], one["channel"], one)
    return {
        (ns, checkpoint_id): Stored(
            ns, checkpoint_id, seq, entry_id, payload, writes.get((ns, checkpoint_id), {})
        )
        for (ns, checkpoint_id), (seq, entry_id, payload) in checkpoints.items()
    }


def lasting(thread: Thread, delta_channels: Mapping[Name, Iterable[str]]) -> set[Name]:
    """What `keep_latest` leaves: the newest of each namespace, and what it is rebuilt from.

    delta_channels: of each checkpoint, the channels that are stored as writes; their ancestors stay
    back to the nearest one that holds a value for each.
    """
    newest = {ns: (ns, checkpoint_id) for ns, checkpoint_id in thread}
    kept = set(newest.values())
    for name in newest.values():
        missing = set(delta_channels.get(name, ())) - set(thread[name].payload["values"])
        while missing and (parent_id := thread[name].parent_id) is not None:
            name = (name[0], parent_id)
            if name not in thread or name in kept:
                break
            kept.add(name)
            missing -= set(thread[name].payload["values"])
    return kept
