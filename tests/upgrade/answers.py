"""What a build answers about a directory, as one structure, and where two of them differ.

Owns: which questions are asked, and what of an answer is compared. As a program it runs with the
client of whatever build is in its path: `answers.py SOCKET` prints what that client is told by the
daemon there, as JSON. So it uses only what 0.1.0 has, and nothing of the tests.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["collect", "differences", "without_app"]

_ACTIONS = ("approve", "decide_tool", "settle_tool")
"""Of `pending`, what 0.1.0 has where this build has it."""
_STATE = (
    *("session", "queue", "lifecycle", "verifications", "last_results"),
    *("modified_files", "modified_files_left_out"),
)
"""Of `state`, what 0.1.0 does not have."""
_SENTENCES = (
    "What was said in this conversation before is replaced by this summary of it:\n\n",
    (
        "The conversation went on elsewhere and came back here; "
        "this is a summary of what was left:\n\n"
    ),
)
"""What 0.1.0 does not say before a summary."""
_VIEWS = ("state", "tree", "transcript", "trace", "audit", "eval", "pending", "resume")


def collect(client: Any) -> dict[str, Any]:
    """Every public question about replies and sessions; a refusal is an answer, too."""
    replies = _asked(client.recover_all)
    names = _asked(lambda: sorted(one.session_id for one in client.sessions()))
    alive = _open_turns(client, names) if isinstance(names, list) else set()
    told: dict[str, Any] = {
        "replies": [_reply(one) for one in replies] if isinstance(replies, list) else replies,
        "orphans": _asked(lambda: sorted(one.stream_id for one in client.orphans())),
        "sessions": _asked(lambda: [_info(one) for one in client.sessions()]),
        "audit": _asked(lambda: _report(client.audit(present=[]), alive)),
    }
    if isinstance(replies, list):
        for session_id in sorted({one.session_id for one in replies}):
            told[f"reply in {session_id}"] = {
                "latest": _asked(lambda: _reply(client.recover(session_id))),  # noqa: B023
                "has_partial": _asked(lambda: client.has_partial(session_id)),  # noqa: B023
            }
    if isinstance(names, list):
        told |= {f"session {name}": _session(client, name, alive) for name in names}
    return told


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """A line for each place where they differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            missing = "(not there)"
            yield from differences(one.get(key, missing), other.get(key, missing), f"{at}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{at}/{number}")
    elif one != other:
        yield f"{at}: {one!r:.300} and {other!r:.300}"


def _session(client: Any, session_id: str, alive: set[str]) -> dict[str, Any]:
    session = client.session(session_id)
    replies = _asked(lambda: client.recover_all(session_id))
    left = [] if isinstance(replies, str) else replies
    told: dict[str, Any] = {
        "events": _asked(session.events),
        "messages": _asked(lambda: _without(left, _said(session.messages(), plain=True))),
        "openai": _asked(lambda: _without(left, _said(session.messages(format="openai")))),
        "resume_check": _asked(lambda: _gate(session.resume_check())),
        "repair_plan": _asked(lambda: _steps(client.repair_plan(session_id, present=[]), alive)),
    }
    told |= {name: _asked(lambda: session.project(name)) for name in _VIEWS}  # noqa: B023
    if isinstance(told["audit"], dict):
        told["audit"]["turns"] = [
            {name: one[name] for name in one if name not in ("answered", "owner", "last_owner")}
            for one in told["audit"]["turns"]
        ]
    if isinstance(told["pending"], list):
        told["pending"] = [one for one in told["pending"] if one["action"] in _ACTIONS]
    if isinstance(told["resume"], dict):
        told["resume"] = _gate(told["resume"])
    if isinstance(told["state"], dict):
        told["state"] = {name: told["state"][name] for name in told["state"] if name not in _STATE}
        told["state"]["denials"] = [
            {name: one[name] for name in ("turn", "call_id", "tool")}
            for one in told["state"]["denials"]
        ]
    if isinstance(told["eval"], dict):
        for name in ("failure", "model_calls"):
            told["eval"].pop(name, None)
        told["eval"]["metadata"].pop("usage", None)
        told["eval"]["input"] = _said(told["eval"]["input"])
        if left:  # 0.1.0 has no words of theirs
            told["eval"] |= {"output": None, "partial": None}
    if isinstance(told["transcript"], list | None):
        told["transcript"] = _turns(told["transcript"])
    if isinstance(told["tree"], dict):
        told["tree"]["nodes"] = [
            {name: one[name] for name in one if name != "bookkeeping"}
            for one in told["tree"]["nodes"]
        ]
    events = told["events"]
    if isinstance(events, list):
        kept = sorted({one["payload"]["sha256"] for one in events if one["type"] == "artifact"})
        told["artifacts"] = {
            one: _asked(lambda: hashlib.sha256(session.read_artifact(one)).hexdigest())  # noqa: B023
            for one in kept
        }
    told["breaks"] = _shown(session.breaks)
    return told


def _gate(told: dict[str, Any] | None) -> dict[str, Any] | None:
    """What 0.1.0 tells, too: its calls are `tools`, and what it calls a reason blocks."""
    if told is None:
        return None
    blocks = [one for one in told["reasons"] if one.get("verdict", "blocked") == "blocked"]
    codes = [(one["code"], one.get("call_id"), one.get("sha256")) for one in blocks]
    said = {"reasons": codes, "status": "blocked" if blocks else "ok"}
    later = ("calls", "owner", "own_turns", "replies")
    return {name: told[name] for name in told if name not in later} | said


def _turns(transcript: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """What 0.1.0 tells, too: nothing of replies that are not released, nor of other entries."""
    later = ("model", "model_calls", "replies", "entries")
    told = [{name: one[name] for name in one if name not in later} for one in transcript or ()]
    for one in told:
        one["tools"] = [tool for tool in one["tools"] if "unreleased" not in tool]
    names = ("turn_id", "messages", "tools", "changes")
    return [one for one in told if any(one.get(name) for name in names)]


def _without_work(one: dict[str, Any]) -> dict[str, Any]:
    """What 0.1.0 tells, too, of a finding or a step."""
    return {name: one[name] for name in one if name not in ("state", "reason", "owner")}


def _open_turns(client: Any, names: list[str]) -> set[str]:
    states = [_asked(client.session(name).state) for name in names]
    turns = [turn for state in states if isinstance(state, dict) for turn in state["turns"]]
    ends = ("completed", "interrupted")
    return {str(turn["turn_id"]) for turn in turns if turn["state"] not in ends}


def _report(report: Any, alive: set[str]) -> Any:
    """What 0.1.0 tells, too: it has findings of turns that are worked on."""
    told = _shown(report)
    told["findings"] = [
        _without_work(one) for one in told["findings"] if one["turn_id"] not in alive
    ]
    return told | ({"overall": None} if alive else {})


def _steps(steps: Any, alive: set[str]) -> Any:
    """What it marks is not compared: it marks what was answered, too. Nor turns worked on, nor the
    replies of a step, which it does not name.
    """
    told = [_without_work(one) for one in _shown(steps)]
    left = [one for one in told if one["key"].partition(":")[0] not in alive]
    return [
        {name: one[name] for name in one if name != "stream_ids"}
        for one in left
        if one["op"] != "mark_interrupted"
    ]


def _said(messages: list[dict[str, Any]] | None, *, plain: bool = False) -> Any:
    """What 0.1.0 tells, too: it has nothing of a call's result, nor of one that a journal names; of
    a plain message's calls it has what the model said, and to a provider it sends none without one.
    """
    if messages is None:
        return None
    told = [one for one in messages if one["role"] != "tool" and "_wal_journal" not in one]
    if plain:
        return [one | _calls_said(one) for one in told]
    told = [{name: one[name] for name in one if name != "tool_calls"} for one in told]
    return [one for one in told if one["content"] is not None]


def _without(replies: list[Any], messages: list[dict[str, Any]] | None) -> Any:
    """What 0.1.0 tells, too: it has nothing of a turn's replies that are not released."""
    if messages is None:
        return None
    ids = {one.stream_id for one in replies}
    sent = [message for one in replies for message in one.messages("openai")]
    told = [one for one in messages if "_wal_stream" not in one or one["_wal_stream"] not in ids]
    return [one for one in told if one not in sent]


def _calls_said(message: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "name", "arguments")
    if "tool_calls" not in message:
        return {}
    calls = message["tool_calls"]
    return {"tool_calls": [{name: one.get(name) for name in names} for one in calls]}


def _asked(ask: Callable[[], Any]) -> Any:
    import walld_client

    try:
        return ask()
    except walld_client.Refused as error:
        return f"Refused {error.code}"
    except walld_client.Unavailable as error:
        return f"Unavailable: {error}"


def _reply(reply: Any) -> Any:
    if reply is None:
        return None
    told: dict[str, Any] = {"messages": reply.messages(), "openai": reply.messages("openai")}
    return _shown(reply) | told


def without_app(told: Any) -> Any:
    """What 0.1.0 tells, too, of plain data and of lines of JSON: whose application a reply is, it
    does not know, nor where its steps and attempts begin, what was said beside a result, branches
    by name, and who works on what a finding is about. To a provider it sends no sentence before a
    summary.
    """
    if isinstance(told, dict):
        told = _without_work(told) if "category" in told else told
        unknown = {"app"}
        if "attempts" in told:
            unknown |= {"steps", "retries"}
        if "call_id" in told and "attempt" in told:
            unknown.add("result_info")
        if "branches" in told and "leaf" in told:
            unknown.add("branches")
        return {name: without_app(one) for name, one in told.items() if name not in unknown}
    if isinstance(told, list | tuple):
        return [without_app(one) for one in told]
    if isinstance(told, str) and told.startswith("{"):
        try:
            return [without_app(json.loads(line)) for line in told.splitlines()]
        except ValueError:
            return told
    if isinstance(told, str):
        return _without_sentences(told)
    return told


def _without_sentences(text: str) -> str:
    for sentence in _SENTENCES:
        text = text.replace(sentence, "")
    return text


def _info(info: Any) -> Any:
    """Without the bytes of its file: what of it is in the log alone is the daemon's affair."""
    return {key: value for key, value in _shown(info).items() if key != "bytes"}


def _shown(value: Any) -> Any:
    """Plain data, whatever kind of object it is."""
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _shown(one) for key, one in value.items()}
    names = getattr(value, "__struct_fields__", None) or getattr(
        value, "__dataclass_fields__", None
    )
    if names:
        return {name: _shown(getattr(value, name)) for name in names}
    return value.hex() if isinstance(value, bytes) else value


def main() -> None:
    import walld_client

    client = walld_client.connect(sys.argv[1], timeout=30)
    print(json.dumps(collect(client), default=repr, sort_keys=True))
    client.close()


if __name__ == "__main__":
    main()
