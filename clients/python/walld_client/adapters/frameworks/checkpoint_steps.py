"""The steps a checkpointer takes on a session.

Owns: which requests a call takes, and what this process remembers of a thread. Refuses: bytes of
values (`checkpoint_log.py` names them, the saver makes them), waiting, LangGraph.

What is about a checkpoint stands behind its first line, which a read must find without reading the
log: the first put has a key of its own, a later one names its place; and writes that whoever makes
them knows no checkpoint for are announced by a line that has a key too.

Reads ask the daemon each time: nothing that another process could have changed is remembered. What
is remembered (`known`) is only ever used for names that the daemon checks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from walld_client.adapters.frameworks.checkpoint_log import (
    CHECKPOINT,
    DROP,
    EARLY,
    WRITES,
    Known,
    Stored,
    Thread,
    Typed,
    Version,
    Write,
    blob,
    bytes_of,
    fold,
    key_prefix,
    known_of,
)
from walld_client.errors import Unavailable
from walld_client.ids import new_entry_id
from walld_client.limits import CHECKPOINT_VALUE_BYTES_MAX, EVENTS_PAGE
from walld_client.session import artifacts
from walld_client.session.entries import Entry, read_json
from walld_client.session.session_steps import SessionSteps
from walld_client.steps import Steps

__all__ = ["Lines", "Loaded", "NewCheckpoint", "ThreadSteps"]

_KNOWN_MAX = 64
"""Checkpoints of a thread that a process remembers: those a run is at."""


Lines = dict[int, dict[str, Any]]
"""Events by seq."""


class NewCheckpoint(NamedTuple):
    """A checkpoint on its way into the log. values: those to store; kept: seqs of the others."""

    ns: str
    id: str
    parent_id: str | None
    run_id: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, Version]
    values: Mapping[str, Typed]
    kept: Mapping[str, int]


class Loaded(NamedTuple):
    """A checkpoint with all its bytes."""

    stored: Stored
    checkpoint: Typed
    metadata: Typed
    values: dict[str, Typed]
    writes: list[tuple[str, str, Write]]
    """Task, its path, what it wrote, in the order in which a live run applies them."""


class ThreadSteps:
    """One thread of one process."""

    def __init__(self, session: SessionSteps) -> None:
        self.session = session
        self.known: OrderedDict[tuple[str, str], Known] = OrderedDict()
        """Checkpoints that are in the log, the last used ones."""

    # --- writing ---

    def put(self, new: NewCheckpoint, parent: Known | None, *, synced: bool) -> Steps[None]:
        """Append a checkpoint. parent: what `kept` was taken from. Refused (`unknown_parent`)."""
        raw = [new.checkpoint, new.metadata, *new.values.values()]
        checkpoint, metadata, *stored = yield from self._blobs(raw)
        values: dict[str, dict[str, Any]] = dict(zip(new.values, stored, strict=True))
        values |= {channel: {"at": seq} for channel, seq in new.kept.items()}
        for channel, one in values.items():
            if channel in new.versions:
                one["version"] = new.versions[channel]
        payload: dict[str, Any] = {
            "ns": new.ns,
            "checkpoint_id": new.id,
            "checkpoint": checkpoint,
            "metadata": metadata,
            "values": values,
        }
        payload |= {} if new.parent_id is None else {"parent_id": new.parent_id}
        payload |= {} if new.run_id is None else {"run_id": new.run_id}
        entry = yield from self._append_put("put", payload, parent, synced)
        if not entry.is_new:  # by somebody, at some time: this one is newer
            payload["first"] = entry.seq
            entry = yield from self._append_put(new_entry_id(), payload, parent, synced)
        self.know(Stored(new.ns, new.id, entry.seq, entry.id, payload, {}))

    def _append_put(
        self, name: str, payload: dict[str, Any], parent: Known | None, synced: bool
    ) -> Steps[Entry]:
        return (
            yield from self.session.append(
                CHECKPOINT,
                payload,
                id=new_entry_id(),
                key=key_prefix(payload["ns"], payload["checkpoint_id"]) + name,
                once=True,
                parent=None if parent is None else parent.entry_id,
                leaf=False,
                synced=synced,
            )
        )

    def put_writes(
        self,
        ns: str,
        checkpoint_id: str,
        writes: Sequence[Write],
        task_id: str,
        task_path: str,
        *,
        synced: bool,
    ) -> Steps[None]:
        """Append what a task wrote; the checkpoint itself may come later."""
        blobs = yield from self._blobs([one.value for one in writes])
        lines = [
            {"index": one.place, "channel": one.channel, **held}
            for one, held in zip(writes, blobs, strict=True)
        ]
        about = {"ns": ns, "checkpoint_id": checkpoint_id}
        payload = {**about, "task_id": task_id, "task_path": task_path, "writes": lines}
        prefix, entry_id = key_prefix(ns, checkpoint_id), new_entry_id()
        if (ns, checkpoint_id) not in self.known:
            yield from self.session.append(
                EARLY, about, id=new_entry_id(), key=prefix + "early", once=True, leaf=False
            )
        yield from self.session.append(
            WRITES,
            payload,
            id=entry_id,
            key=prefix + entry_id,
            once=True,
            leaf=False,
            synced=synced,
        )

    def drop(self, names: Iterable[tuple[str, str]], *, synced: bool) -> Steps[None]:
        """Hide checkpoints and their writes."""
        for ns, checkpoint_id in names:
            entry_id = new_entry_id()
            yield from self.session.append(
                DROP,
                {"ns": ns, "checkpoint_id": checkpoint_id},
                id=entry_id,
                key=key_prefix(ns, checkpoint_id) + entry_id,
                once=True,
                leaf=False,
                synced=synced,
            )
            self.known.pop((ns, checkpoint_id), None)

    # --- reading ---

    def latest(self, ns: str) -> Steps[Stored | None]:
        """The newest checkpoint of a namespace. Reads the log from its end."""
        wanted, gone = 1, set()
        while True:
            prefix = key_prefix(ns)
            found = yield from self.session.find(CHECKPOINT, key_prefix=prefix, last=wanted)
            for put in reversed(found):
                checkpoint_id = put["payload"]["checkpoint_id"]
                if put["payload"]["ns"] != ns or checkpoint_id in gone:
                    continue
                stored = yield from self._stored(put)
                if stored is not None:
                    return stored
                gone.add(checkpoint_id)
            if len(found) < wanted:
                return None  # all of them were dropped
            wanted *= 4

    def named(self, ns: str, checkpoint_id: str) -> Steps[Stored | None]:
        """The checkpoint of that id: near the end of the log quickly, else the daemon reads all."""
        prefix = key_prefix(ns, checkpoint_id)
        found = yield from self.session.find(CHECKPOINT, key_prefix=prefix, last=1)
        return (yield from self._stored(found[0])) if found else None

    def _stored(self, put: dict[str, Any]) -> Steps[Stored | None]:
        """A checkpoint as it was put last, with its writes; None where it was dropped since."""
        ns, checkpoint_id = put["payload"]["ns"], put["payload"]["checkpoint_id"]
        prefix = key_prefix(ns, checkpoint_id)
        marks = yield from self.session.find(EARLY, key=prefix + "early")
        first = min(put["seq"], put["payload"].get("first", put["seq"]), *(m["seq"] for m in marks))
        page = yield from self.session.lines(first - 1)
        if len(page) < EVENTS_PAGE:
            found = [read_json(line) for line in page]
        else:
            found = yield from self.session.project("find", type=None, key_prefix=prefix)
        about = [one for one in found or () if (one.get("key") or "").startswith(prefix)]
        stored = fold((yield from self._whole(about))).get((ns, checkpoint_id))
        return None if stored is None else self.know(stored)

    def all(self) -> Steps[tuple[Thread, Lines]]:
        """Every checkpoint, and the events they are in. Reads the whole log."""
        events = yield from self._whole((yield from self.session.events()))
        return fold(events), {one["seq"]: one for one in events if one["type"] == CHECKPOINT}

    def load(self, stored: Stored, lines: Lines) -> Steps[Loaded]:
        """All its bytes, those that other entries and artifacts hold too.

        lines: events that were read already; those that are missing are read and added.
        """
        values: dict[str, Typed] = {}
        for channel, held in stored.payload["values"].items():
            if "at" in held:
                seq = held["at"]
                if seq not in lines:
                    (line,) = (yield from self.session.lines(seq - 1, 1)) or (b"{}",)
                    lines[seq] = read_json(line)
                held = _held(lines[seq], channel, seq, stored)
            values[channel] = yield from self._bytes(held)
        writes = []
        for task_id, task_path, index, channel, held in stored.ordered_writes():
            value = yield from self._bytes(held)
            writes.append((task_id, task_path, Write(index, channel, value)))
        checkpoint = yield from self._bytes(stored.payload["checkpoint"])
        metadata = yield from self._bytes(stored.payload["metadata"])
        return Loaded(stored, checkpoint, metadata, values, writes)

    def metadata(self, stored: Stored) -> Steps[Typed]:
        """Its metadata alone."""
        return (yield from self._bytes(stored.payload["metadata"]))

    # --- within ---

    def know(self, stored: Stored) -> Stored:
        """It is in the log: a later checkpoint may name its entry."""
        self.known[stored.ns, stored.id] = known_of(stored)
        self.known.move_to_end((stored.ns, stored.id))
        _shorten(self.known)
        return stored

    def _blobs(self, values: Sequence[Typed]) -> Steps[list[dict[str, Any]]]:
        """Values as they stand in a payload; long ones are put beside the session before it."""
        held = []
        for value in values:
            described = None
            if len(value[1]) > CHECKPOINT_VALUE_BYTES_MAX:
                described = yield from artifacts.upload(self.session.session_id, value[1])
            held.append(blob(value, described))
        return held

    def _whole(self, events: Iterable[dict[str, Any]]) -> Steps[list[dict[str, Any]]]:
        """Events, with what was too much for an entry (many channels, many writes) in its place."""
        whole = []
        for event in events:
            payload = event["payload"]
            for field in ("values", "writes"):
                held = payload.get(field) if event["type"] in (CHECKPOINT, WRITES) else None
                # A channel may have that name too; its blob has no hash in this place.
                named = held.get("_artifact", {}) if isinstance(held, dict) else {}
                if held is not None and len(held) == 1 and "sha256" in named:
                    raw = yield from self.session.read_artifact(named["sha256"])
                    payload = payload | {field: read_json(raw)}
            whole.append(event if payload is event["payload"] else event | {"payload": payload})
        return whole

    def _bytes(self, held: Mapping[str, Any]) -> Steps[Typed]:
        value = bytes_of(held)
        if isinstance(value, str):
            return str(held["form"]), (yield from self.session.read_artifact(value))
        return value


def _held(line: Mapping[str, Any], channel: str, seq: int, stored: Stored) -> dict[str, Any]:
    """The blob that an earlier entry has of a channel."""
    is_it = (line.get("seq"), line.get("type")) == (seq, CHECKPOINT)
    there = line["payload"] if is_it else {}
    held = there.get("values", {}).get(channel)
    if held is None or "at" in held:
        raise Unavailable(
            f"checkpoint {stored.id!r} (seq {stored.seq}) has the value of {channel!r} in event"
            f" {seq}, which holds none: the log is damaged, `walld fsck` says where"
        )
    found: dict[str, Any] = held
    return found


def _shorten(remembered: OrderedDict[tuple[str, str], Any]) -> None:
    while len(remembered) > _KNOWN_MAX:
        remembered.popitem(last=False)
