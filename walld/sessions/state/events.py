"""One event of a session's ledger, and what the payload of each known type must hold.

Owns: `Event`, the rule for type names, the checks of payloads. Refuses: what needs to know the
events before (`session_state.py`), lines and files (the daemon), what an event means (the
projections).

A type that is not known is the application's own: its payload is any object. Fields that are not
known are kept wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

__all__ = [
    "CAME_FROM",
    "KNOWN",
    "LIFECYCLE",
    "QUEUED",
    "UNKNOWN",
    "Child",
    "Event",
    "Link",
    "Problem",
    "as_dict",
    "check_new",
    "check_payload",
    "check_type",
    "declared_message",
    "is_sha256",
    "link_of",
    "unknown_turn",
]

SIDE_EFFECTS: Final = ("none", "read", "workspace-write", "external-write")
FINER_EFFECTS: Final = ("network", "process")
"""What an external write may be more exactly: it stands in `effect`, beside `side_effect`, so that
older readers know the call for what it is to them.
"""
RESUME_POLICIES: Final = (
    "replay-from-event",
    "rerun-after-check",
    "require-user-confirmation",
    "never-rerun",
)
UNKNOWN: Final = "unknown"
"""Tool, side effect and policy of a call whose start stands there and whose intent is lost."""
APPROVALS: Final = ("asked", "granted", "denied")
SETTLED: Final = ("ran", "did_not_run", "granted", "denied")
"""What a person may say of a call, also where its turn has ended."""
QUEUED: Final = ("input", "steering")
"""What a `queued` entry holds: a message for a turn to come, or words for the one at work."""
LIFECYCLE: Final = ("running", "paused", "failed", "done")
CAME_FROM: Final = frozenset(("forked", "imported"))
"""Types that tell what a session lacks of the one it came from."""
_DECLARED: Final = ("user", "assistant", "system")
SHOWN_CHARS: Final = 80
"""Of a refused value in a message."""

_TYPE: Final = re.compile(r"[a-z][a-z0-9_.:/-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Child(NamedTuple):
    """What became of the session of a sub-agent, in its turns behind its link to a call.

    turn: the newest of those. is_done: it was completed, or the model spoke last in it, to its end;
    result: what it said last. status, reasons, owner: of the child's gate, where it is not done.
    unread: why nobody knows.
    """

    turn: str | None = None
    is_done: bool = False
    result: object = None
    status: str | None = None
    reasons: Sequence[Mapping[str, Any]] = ()
    owner: Mapping[str, Any] | None = None
    unread: str | None = None


class Link(NamedTuple):
    """What joins a sub-agent's session and a call of its parent's. session: the other one.

    of: the call, named as in a `tool_settled`.
    """

    session: str
    call_id: str
    of: dict[str, Any]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the ledger. parent: the id it hangs on, None at the root.

    leaf: False where it does not become the leaf. owner: of a turn, put there by the daemon. child:
    what became of the session that a `child` entry names, for a view: it is in no line.
    """

    seq: int
    id: str
    parent: str | None = None
    at_ms: int = 0
    type: str
    turn: str | None = None
    cause: str | None = None
    correlation: str | None = None
    key: str | None = None
    leaf: bool = True
    owner: dict[str, Any] | None = None
    payload: dict[str, Any] = {}
    child: Child | None = None


class Problem(NamedTuple):
    """Why an event is refused. code: for programs; message: names the field; got, limit: both."""

    code: str
    message: str
    got: str
    limit: str


def unknown_turn(got: str | None, field: str = "turn") -> Problem:
    """Of a field that names no turn."""
    limit = "the id of a turn that was submitted"
    return Problem("unknown_turn", f"{field} names no turn", str(got), limit)


def as_dict(event: Event) -> dict[str, Any]:
    """The event as a view shows it: what is not there is left out, as in its line."""
    fields = {
        name: value
        for name in ("seq", "id", "parent", "at_ms", "type", "turn", "cause", "correlation", "key")
        if (value := getattr(event, name)) is not None
    }
    if not event.leaf:
        fields["leaf"] = False
    if event.owner is not None:
        fields["owner"] = event.owner
    fields["payload"] = event.payload
    return fields


def check_type(type: str) -> Problem | None:  # noqa: A002 - it is one
    """A type is a short lower-case word, whoever made it up."""
    if _TYPE.fullmatch(type):
        return None
    return Problem(
        "bad_type", "type is no name of an event type", _shown(type), f"/{_TYPE.pattern}/"
    )


def check_payload(type: str, payload: dict[str, Any]) -> Problem | None:  # noqa: A002
    """What is wrong with the payload of that type, None where nothing is."""
    fields = KNOWN.get(type)
    if fields is None:
        return check_type(type)  # a type that is known is a good name
    if problem := _check(type, payload, fields):
        return problem
    check = _MORE.get(type)
    return None if check is None else check(payload)


def _check(type: str, payload: dict[str, Any], fields: tuple[_Field, ...]) -> Problem | None:  # noqa: A002
    for name, fits, limit, required in fields:
        if name not in payload:
            if required:
                return _bad(type, name, "nothing", limit)
        elif not fits(payload[name]):
            return _bad(type, name, _kind(payload[name]), limit)
    return None


def declared_message(event: Event) -> dict[str, Any] | None:
    """The message that an application's own entry is declared to be, by `_message` of its payload:
    a role that no tool has, and a text. None of any other entry.
    """
    told = event.payload.get("_message")
    if not isinstance(told, dict) or event.type in KNOWN:
        return None
    role, content = told.get("role"), told.get("content")
    if role not in _DECLARED or not isinstance(content, str) or not content:
        return None
    return {"role": role, "content": content, "_declared": event.type}


def link_of(payload: Mapping[str, Any]) -> Link | None:
    """Of a `child` or `child_of`; None of an application's own entry of that type."""
    session, call_id, of = (payload.get(name) for name in ("session", "call_id", "of"))
    if not (isinstance(session, str) and isinstance(call_id, str) and isinstance(of, dict)):
        return None
    is_link = session and of.get("call_id") == call_id and _names_a_call(of)
    return Link(session, call_id, of) if is_link else None


def check_new(type: str, payload: dict[str, Any]) -> Problem | None:  # noqa: A002
    """What keeps it from coming now. What is tried again is what it was."""
    if problem := check_payload(type, payload) or _check(type, payload, _NEW.get(type, ())):
        return problem
    is_first = type == "turn_submitted" and payload.get("retry_of") is None
    if not is_first or _CONTENT(payload["content"]):
        return None
    return _bad(type, "content", _kind(payload["content"]), _CONTENT_LIMIT)


class _Field(NamedTuple):
    name: str
    fits: Callable[[object], bool]
    limit: str
    required: bool = True


def _bad(type: str, name: str, got: str, limit: str) -> Problem:  # noqa: A002
    return Problem("bad_payload", f"{name} of {type} cannot be used", got, limit)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."


def _kind(value: object) -> str:
    """Of a field that is not what it must be: what was said stays out of answers and logs."""
    match value:
        case str():
            return f"a text of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"an object of {len(value)} fields"
        case _:
            return _shown(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(least: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and value is not True and value >= least


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and _is_name(value.get("role"))


def _is_message_list(value: object) -> bool:
    return isinstance(value, list) and all(_is_message(one) for one in value)


def _is_name_list(value: object) -> bool:
    return isinstance(value, list) and all(_is_name(one) for one in value)


def _is_seqs_list(value: object) -> bool:
    is_seq = _is_count(1)
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2 and all(map(is_seq, one)) for one in value
    )


def _is_file_table(value: object) -> bool:
    return isinstance(value, dict) and all(one is None or is_sha256(one) for one in value.values())


def _is_call_list(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and all(_is_name(one.get(name)) for name in ("turn", "call_id", "tool"))
        and one.get("side_effect") in (*SIDE_EFFECTS, UNKNOWN)
        and one.get("resume_policy") in (*RESUME_POLICIES, UNKNOWN)
        for one in value
    )


def is_sha256(value: object) -> TypeGuard[str]:
    """64 hex digits in lower case."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _or_null(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _of_kind(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _anything(_value: object) -> bool:
    return True


def _name(name: str, *, required: bool = True) -> _Field:
    return _Field(name, _is_name, "a text that is not empty", required)


def _optional_name(name: str) -> _Field:
    return _Field(name, _or_null(_is_name), "a text that is not empty, or null", required=False)


def _one_of(name: str, words: tuple[str, ...]) -> _Field:
    return _Field(name, lambda value: value in words, " | ".join(words))


def _names_a_call(value: object) -> bool:
    """Of a turn, or of a reply without one; by the entry that began it, or by its place in a reply,
    where several there have its id.
    """
    if not isinstance(value, dict) or not _is_name(value.get("call_id")):
        return False
    places = ("turn", "stream", "entry")
    if not all(_is_name(value[one]) for one in places if one in value):
        return False
    is_seq = _is_count(0)
    if not all(is_seq(value.get(one, 0)) for one in ("seq", "step", "place")):
        return False
    if not _is_count(2)(value.get("n", 2)) or ("step" in value) != ("place" in value):
        return False
    turn, stream, entry = (one in value for one in places)
    if "seq" in value or "step" in value:
        return stream and not entry
    return not stream if entry else turn != stream


_CALL: Final = _name("call_id")
_FLAG: Final = _of_kind(bool)
_MORE_OF_IT: Final = _Field("append", _FLAG, "true or false", False)
"""A list that is too long for one entry goes on in the next one of its type."""
_CONTENT: Final = _of_kind(str, list, dict, type(None))
_CONTENT_LIMIT: Final = "a text, a list, an object or null"

_LEFT_BEHIND: Final = (
    _Field("missing", _is_seqs_list, "a list of [first seq, last seq]", False),
    _Field("started", _is_name_list, "a list of ids of entries", False),
    _Field("mixed", _is_name_list, "a list of ids of entries", False),
    _Field("calls", _is_call_list, "a list of calls, each with what a tool_intent has", False),
    _optional_name("as_of"),
)
"""What a session has to know of events that stand where it came from alone."""

KNOWN: Final[dict[str, tuple[_Field, ...]]] = {
    "message": (_name("role"), _Field("content", _CONTENT, _CONTENT_LIMIT, False)),
    "message_edit": (
        _name("target", required=False),
        _Field("message", _is_message, "a message with a role", False),
        _Field("messages", _is_message_list, "a list of messages, each with a role", False),
        _MORE_OF_IT,
    ),
    "undo": (_Field("n", _is_count(1), "a number from 1"),),
    "label": (_name("target"), _Field("text", _or_null(_is_text), "a text or null", False)),
    "branch_summary": (
        _Field("target", _or_null(_is_name), "the id of an entry, or null"),
        _Field("text", _is_text, "a text"),
    ),
    "setting": (_name("key"), _Field("value", _anything, "any value")),
    "model_change": (_name("model"),),
    "compaction": (
        _Field("summary", _is_text, "a text", False),
        _name("first_kept", required=False),
        _Field("replacement", _is_message_list, "a list of messages, each with a role", False),
        _MORE_OF_IT,
    ),
    "leaf": (
        _Field("target", _or_null(_is_name), "the id of an entry, or null"),
        _optional_name("name"),
    ),
    "forked": (
        _name("session"),
        _Field("at", _or_null(_is_text), "the id of an entry, or null", False),
        _Field("whole", _FLAG, "true or false", False),
        *_LEFT_BEHIND,
    ),
    "imported": (_optional_name("begun"), _optional_name("ended"), *_LEFT_BEHIND),
    "turn_submitted": (
        _optional_name("message_id"),
        _Field("content", _anything, "any value"),
        _Field("attachments", _or_null(_of_kind(list)), "a list", False),
        _optional_name("model"),
        _optional_name("retry_of"),
        _optional_name("stream_id"),
        _Field("meta", _or_null(_of_kind(dict)), "an object", False),
    ),
    "turn_worker_started": (_optional_name("stream_id"),),
    "turn_assistant_started": (_name("stream_id"),),
    "turn_completed": (
        _Field("reason", _or_null(_is_text), "a text or null", False),
        _optional_name("stream_id"),
    ),
    "turn_interrupted": (_name("reason"), _optional_name("stream_id")),
    "tool_intent": (
        _CALL,
        _name("tool"),
        _Field("arguments", _anything, "any value", False),
        _one_of("side_effect", SIDE_EFFECTS),
        _one_of("resume_policy", RESUME_POLICIES),
    ),
    "tool_decision": (_CALL, _name("verdict")),
    "tool_approval": (_CALL, _one_of("state", APPROVALS)),
    "tool_settled": (
        _Field("of", _names_a_call, "call_id, and turn or stream; or entry; or stream, seq"),
        _one_of("word", SETTLED),
    ),
    # What an application had under these names before is taken.
    "model_call": (),
    "child": (),
    "child_of": (),
    "queued": (),
    "dequeued": (),
    "tool_progress": (),
    "session_info": (),
    "compaction_failed": (),
    "tool_started": (_CALL,),
    "tool_finished": (
        _CALL,
        _Field("failed", _FLAG, "true or false", False),
        _Field("files", _or_null(_is_file_table), "paths, each with 64 hex digits or null", False),
    ),
    "observation": (
        _optional_name("call_id"),
        _Field("text", _is_text, "a text", False),
        _name("of_turn", required=False),
        _name("of_call", required=False),
    ),
    "artifact": (
        _Field("sha256", is_sha256, "64 hex digits"),
        _Field("size", _is_count(0), "a number from 0"),
        _name("media_type"),
    ),
    "verification": (),
    "budget": (
        *(
            _Field(name, _or_null(_is_number), "a number or null", False)
            for name in ("remaining", "used", "limit")
        ),
        _Field("exhausted", _or_null(_FLAG), "true, false or null", False),
    ),
    "lifecycle": (_Field("fingerprint", _or_null(_of_kind(dict)), "an object", False),),
}
"""Type -> what its payload must hold."""


_NEW: Final[dict[str, tuple[_Field, ...]]] = {
    "queued": (
        _Field("content", _CONTENT, _CONTENT_LIMIT),
        _one_of("kind", QUEUED),
        _optional_name("message_id"),
    ),
    "dequeued": (_name("target"),),
    "tool_progress": (_CALL,),
    "session_info": (
        _Field("cwd", _or_null(_is_text), "a text or null", False),
        _Field("version", _or_null(_is_text), "a text or null", False),
    ),
}
"""Type -> what its payload must hold beside that to come now: an application may have had entries
of its own of that type.
"""


def _check_edit(payload: dict[str, Any]) -> Problem | None:
    one = "target" in payload and "message" in payload
    if one != ("messages" in payload):
        return None
    given = ", ".join(name for name in ("target", "message", "messages") if name in payload)
    return _bad("message_edit", "what to edit", given or "nothing", "target, message | messages")


def _check_compaction(payload: dict[str, Any]) -> Problem | None:
    if "replacement" in payload or ("summary" in payload and "first_kept" in payload):
        return None
    given = ", ".join(name for name in ("summary", "first_kept") if name in payload)
    limit = "summary, first_kept | replacement"
    return _bad("compaction", "what is kept", given or "nothing", limit)


def _check_submitted(payload: dict[str, Any]) -> Problem | None:
    if payload.get("message_id") or payload.get("retry_of"):
        return None
    return _bad("turn_submitted", "message_id", "nothing", "a text that is not empty")


def _check_observation(payload: dict[str, Any]) -> Problem | None:
    """Of a call of this session (call_id), or of one that `forked` or `imported` names."""
    given = [name for name in ("call_id", "of_turn", "of_call") if payload.get(name) is not None]
    if given in ([], ["call_id"], ["of_turn", "of_call"]):
        return None
    limit = "call_id | of_turn, of_call | none of them"
    return _bad("observation", "what was observed", ", ".join(given), limit)


_MORE: Final[dict[str, Callable[[dict[str, Any]], Problem | None]]] = {
    "message_edit": _check_edit,
    "observation": _check_observation,
    "compaction": _check_compaction,
    "turn_submitted": _check_submitted,
}
