"""Which fields of an entry are names, which `redact` must not change.

Owns: the table of them by the type of the entry. Refuses: what is done with the others
(`redaction.py`), the checks of payloads (the daemon's `sessions/state/events.py`).

A name is an id, a hash, a word out of a list (a role, a policy, a verdict), the name of a tool, a
model, a branch or a setting, a path of the workspace. Changed, it would name something else, or
nothing: two messages would be one, another's result would settle a call. The Node client has the
same table, `nameFields.ts`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NAMED", "NAMES", "Names", "names_of"]

Names = dict[str, "Names"]
"""The steps of paths as a tree; NAMED in it where one ends. A text there is a name, and what stands
there instead of a text has none.
"""
NAMED: Final = ""

_MESSAGE: Final = (
    "role",
    *("id", "call_id", "tool_call_id", "tool_use_id", "outcome"),
    *("_message_id", "_turn", "_compaction", "_branch_summary"),
    *("_wal_stream", "_partial_reason"),
    *(f"content.[].{name}" for name in ("type", "id", "call_id", "tool_call_id", "tool_use_id")),
    *(
        f"{listed}.[].{name}"
        for listed in ("tool_calls", "tool_results")
        for name in (
            *("type", "id", "call_id", "tool_call_id", "tool_use_id", "name", "outcome"),
            "function.name",
        )
    ),
    *("attachments.[].sha256", "attachments.[].media_type"),
)
_LEFT_BEHIND: Final = (
    *("as_of", "started.[]", "mixed.[]"),
    *(
        f"calls.[].{name}"
        for name in ("turn", "call_id", "tool", "side_effect", "resume_policy", "as_of")
    ),
)
_OF_GONE: Final = (
    *("call_id", "name", "outcome", "arguments_hash"),
    *("side_effect", "resume_policy", "idempotency"),
)


def _within(place: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{place}.{path}" for path in paths)


NAMES: Final[dict[str, tuple[str, ...]]] = {
    "message": _MESSAGE,
    "message_edit": (
        *("target", "message_id"),
        *_within("message", _MESSAGE),
        *_within("messages.[]", _MESSAGE),
    ),
    "undo": (),
    "label": ("target",),
    "branch_summary": ("target",),
    "setting": ("key",),
    "model_change": ("model",),
    "compaction": ("first_kept", *_within("replacement.[]", _MESSAGE)),
    "leaf": ("target", "name"),
    "forked": ("session", "at", *_LEFT_BEHIND),
    "imported": ("begun", "ended", *_LEFT_BEHIND),
    "turn_submitted": (
        *("message_id", "retry_of", "stream_id", "model"),
        *(path for path in _MESSAGE if path.startswith(("content.", "attachments."))),
    ),
    "turn_worker_started": ("stream_id",),
    "turn_assistant_started": ("stream_id",),
    "turn_completed": ("stream_id",),
    "turn_interrupted": ("stream_id",),
    "tool_intent": (
        *("call_id", "tool", "side_effect", "resume_policy", "effect", "idempotency"),
        *("supersedes", "said"),
    ),
    "tool_decision": ("call_id", "verdict"),
    "tool_approval": ("call_id", "state"),
    "tool_settled": ("of.turn", "of.stream", "of.entry", "of.call_id", "word"),
    **dict.fromkeys(
        ("child", "child_of"),
        ("session", "call_id", "of.turn", "of.stream", "of.entry", "of.call_id"),
    ),
    "queued": ("kind", "message_id"),
    "dequeued": ("target",),
    "tool_progress": ("call_id",),
    "session_info": ("cwd", "version"),
    "compaction_failed": (),
    "model_call": (
        *("stream", "status", "error_class", "error_kind", "finish_reason"),
        *("model", "provider", "request_id", "tools_hash"),
        *(f"{listed}.[].{name}" for listed in ("calls", "results") for name in _OF_GONE),
    ),
    "tool_started": ("call_id", "boot"),
    "tool_finished": ("call_id", "outcome", "files.*"),
    "observation": ("call_id", "of_turn", "of_call"),
    "artifact": ("sha256", "media_type"),
    "verification": ("name",),
    "budget": (),
    "lifecycle": (
        *("kind", "state"),
        *(
            f"fingerprint.{name}"
            for name in ("root", "head", "branch", "changes.*", "kinds.*", "files.*")
        ),
    ),
}
"""Type -> paths to names: `[]` is each part of a list, `*` what each key has. Types that are not
here are the application's own and have none. Wherever `_artifact` stands its hash and media type
are names too, for there the daemon looks for the bytes.
"""


def _tree(paths: tuple[str, ...]) -> Names:
    tree: Names = {}
    for path in paths:
        place = tree
        for step in path.split("."):
            place = place.setdefault(step, {})
        place[NAMED] = {}
    return tree


_TREES: Final = {name: _tree(paths) for name, paths in NAMES.items()}
_NONE: Final[Names] = {}
ARTIFACT: Final = _tree(("sha256", "media_type"))
"""Of what stands under `_artifact`."""


def names_of(type: str) -> Names:  # noqa: A002
    """The names in a payload of that type."""
    return _TREES.get(type, _NONE)
