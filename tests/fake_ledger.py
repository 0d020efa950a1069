"""A ledger that stands in for the daemon's: what a client's sessions are tested against.

It answers the requests of `FakeDaemon` from lists in memory, and keeps only what the client must be
able to rely on: order, `once`, `expected_seq`, turns as far as their states, artifacts by hash. Its
views are as plain as they can be; what they mean is the daemon's to test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
from fake_daemon import FakeDaemon, Peer
from walld_client.wire import messages as wire

__all__ = ["FakeLedger"]

_CHUNK_BYTES = 256 * 1024
_ENDS = ("completed", "interrupted")


class _Refuse(Exception):
    pass


class FakeLedger:
    """`sessions` holds each session's events; `views` the answers of views, by name."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.sessions: dict[str, list[dict[str, Any]]] = {}
        self.artifacts: dict[tuple[str, bytes], bytes] = {}
        self.pieces: dict[tuple[str, bytes], bytes] = {}
        self.views: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.before: Callable[[Peer, Any], bool] = lambda peer, request: False
        """True where it has dealt with the request itself."""
        daemon.answer = self.answer

    def answer(self, peer: Peer, request: Any) -> None:
        self.asked.append(request)
        if self.before(peer, request):
            return
        try:
            value = getattr(self, f"_{type(request).__name__.lower()}")(request)
        except _Refuse as refused:
            code, got, limit = refused.args
            peer.say(wire.Error(code, f"refused: {code}", got, limit, request.id))
        else:
            whole = msgspec.msgpack.encode(value)
            while len(whole) > _CHUNK_BYTES:
                peer.say(wire.Answer(request.id, whole[:_CHUNK_BYTES], last=False))
                whole = whole[_CHUNK_BYTES:]
            peer.say(wire.Answer(request.id, whole))

    def types(self, session_id: str) -> list[str]:
        return [event["type"] for event in self.sessions.get(session_id, [])]

    def _append(self, request: wire.Append) -> list[wire.Placed]:
        events = self.sessions.get(request.session_id, [])
        if request.expected_seq not in (None, len(events)):
            raise _Refuse("stale", str(request.expected_seq), str(len(events)))
        events, placed = list(events), []
        for entry in request.entries:
            first = self._first(events, entry)
            if first is not None:
                placed.append(wire.Placed(first["seq"], first["id"], is_new=False))
                continue
            if any(event["id"] == entry.id for event in events):
                raise _Refuse("duplicate_id", entry.id, "an id of its own")
            parents = [event["id"] for event in events if event.get("leaf", True)]
            leaf = parents[-1] if parents else None
            known = {name: getattr(entry, name) for name in entry.__struct_fields__}
            event = known | {"seq": len(events) + 1, "parent": entry.parent or leaf}
            event["payload"] = json.loads(entry.payload)
            event = {name: value for name, value in event.items() if value is not None}
            events.append(event)
            placed.append(wire.Placed(event["seq"], entry.id))
        self.sessions[request.session_id] = events
        return placed

    @staticmethod
    def _first(events: list[dict[str, Any]], entry: wire.NewEntry) -> dict[str, Any] | None:
        name = "id" if entry.key is None else "key"
        same = [event for event in events if event.get(name) == getattr(entry, name)]
        return same[0] if entry.once and same else None

    def _events(self, request: wire.Events) -> list[bytes] | None:
        events = self.sessions.get(request.session_id)
        if events is None:
            return None
        lines = [json.dumps(event).encode() + b"\n" for event in events[request.after :]]
        return lines[: request.limit] if request.limit else lines

    def _project(self, request: wire.Project) -> bytes | None:
        events = self.sessions.get(request.session_id)
        if events is None:
            return None
        arguments = json.loads(request.arguments)
        view = self.views.get(request.name)
        if view is None:
            view = getattr(self, f"_view_{request.name}")(events, **arguments)
        return json.dumps(view(arguments) if callable(view) else view).encode()

    def _view_messages(self, events: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        return [
            {"role": "user"} | event["payload"]
            for event in events
            if event["type"] in ("message", "turn_submitted")
        ]

    def _view_edit_target(
        self, events: list[dict[str, Any]], of: str, *, role: bool = False
    ) -> dict[str, str]:
        return {"target": of} | ({"role": "user"} if role else {})

    def _view_branches(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        return {}

    def _view_find(self, events: list[dict[str, Any]], **given: Any) -> list[dict[str, Any]]:
        found = [one for one in events if one["type"] == given["type"]]
        if (prefix := given.get("key_prefix")) is not None:
            found = [one for one in found if one.get("key", "").startswith(prefix)]
        if (key := given.get("key")) is not None:
            found = [one for one in found if one.get("key") == key]
        return found[-(given.get("last") or len(found)) :]

    def _view_turn(
        self, events: list[dict[str, Any]], turn_id: str | None, stream_id: str | None
    ) -> dict[str, Any] | None:
        for turn in self._view_state(events)["turns"]:
            if turn["turn_id"] == turn_id or stream_id in turn["stream_ids"]:
                return turn
        return None

    def _view_state(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        turns: dict[str, dict[str, Any]] = {}
        for event in events:
            turn, payload = turns.get(event.get("turn", "")), event["payload"]
            name = event["type"].removeprefix("turn_")
            if name == "submitted":
                streams = [payload["stream_id"]] if "stream_id" in payload else []
                turns[event["turn"]] = {
                    "turn_id": event["turn"],
                    "message_id": payload["message_id"],
                    "stream_ids": streams,
                    "state": name,
                    "submitted_seq": event["seq"],
                }
            elif turn is not None and event["type"].startswith("turn_"):
                if turn["state"] not in _ENDS:
                    turn["state"] = name
                if payload.get("stream_id") not in (None, *turn["stream_ids"]):
                    turn["stream_ids"].append(payload["stream_id"])
        return {"turns": list(turns.values()), "last_seq": len(events)}

    def _sessions(self, request: wire.Sessions) -> list[wire.SessionFacts]:
        return [
            wire.SessionFacts(name, 0, len(events), 1500, 9)
            for name, events in sorted(self.sessions.items())
            if name.startswith(request.prefix)
        ]

    def _delete(self, request: wire.Delete) -> bool:
        return self.sessions.pop(request.session_id, None) is not None

    def _fork(self, request: wire.Fork) -> list[wire.Placed]:
        events = self.sessions.get(request.session_id, [])
        stop = [event["id"] for event in events].index(request.at) + 1 if request.at else None
        self.sessions[request.new_id] = list(events[:stop])
        return [wire.Placed(len(events[:stop]), events[:stop][-1]["id"])]

    def _putartifact(self, request: wire.PutArtifact) -> bool:
        key = (request.session_id, request.sha256)
        held = self.pieces.get(key, b"")
        if key in self.artifacts:
            return True
        if request.offset != len(held):
            raise _Refuse("artifact_offset", str(request.offset), str(len(held)))
        held = self.pieces[key] = held + request.chunk
        if len(held) < request.size:
            return False
        if sha256(held).digest() != request.sha256:
            raise _Refuse("wrong_hash", sha256(held).hexdigest(), request.sha256.hex())
        self.artifacts[key] = held
        return True

    def _getartifact(self, request: wire.GetArtifact) -> bytes:
        held = self.artifacts.get((request.session_id, request.sha256))
        if held is None:
            raise _Refuse("artifact_missing", request.sha256.hex(), "an artifact of the session")
        return held
